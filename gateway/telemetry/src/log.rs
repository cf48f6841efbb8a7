//! Log lines to standard error, as text for people or JSON for machines, with a level that can change while running.
//!
//! `RUST_LOG` wins over the configured level: whoever sets it is looking for something right now.

use std::{
    fmt,
    io::{self, IsTerminal},
};

use tracing::{Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{
    EnvFilter, Layer, Registry, fmt::MakeWriter, layer::SubscriberExt, reload, util::SubscriberInitExt,
};

use crate::Error;

/// Dependencies that narrate every frame below `warn`: asking for our own debug lines must not bring theirs.
const TALKATIVE: [&str; 8] =
    ["h2", "hyper", "hyper_util", "mio", "notify", "notify_debouncer_full", "pingora", "rustls"];

/// How a line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// One line for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Changes the level of the running log.
#[derive(Clone)]
pub struct Handle {
    filter: reload::Handle<EnvFilter, Registry>,
    /// Whether `RUST_LOG` decides.
    pinned: bool,
}

/// Starts the log of this process, on standard error.
///
/// `level` is `off`, `error`, `warn`, `info`, `debug` or `trace`. Colours appear on a terminal only, unless `NO_COLOR`
/// is set.
///
/// # Errors
/// `UnknownLevel`, `InvalidFilter` for a bad `RUST_LOG`, `AlreadySetUp` on the second call.
pub fn init(format: Format, level: &str) -> Result<Handle, Error> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let colours = io::stderr().is_terminal() && variable("NO_COLOR").is_none();
    let (subscriber, handle) = build(format, level, variable("RUST_LOG").as_deref(), colours, io::stderr)?;
    subscriber.try_init().map_err(|_| Error::AlreadySetUp)?;
    Ok(handle)
}

impl Handle {
    /// Changes the level from the next line on. False when `RUST_LOG` is set and the level therefore stays.
    ///
    /// # Errors
    /// `UnknownLevel`; `Gone` when the log no longer exists.
    pub fn set_level(&self, level: &str) -> Result<bool, Error> {
        let filter = filter_of(level)?;
        if self.pinned {
            return Ok(false);
        }
        self.filter.reload(filter).map_err(Error::Gone)?;
        Ok(true)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("pinned", &self.pinned).finish_non_exhaustive()
    }
}

fn build<W>(
    format: Format,
    level: &str,
    rust_log: Option<&str>,
    colours: bool,
    writer: W,
) -> Result<(impl Subscriber + Send + Sync + use<W>, Handle), Error>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let configured = filter_of(level)?;
    let filter = match rust_log {
        Some(directives) => EnvFilter::try_new(directives).map_err(Error::InvalidFilter)?,
        None => configured,
    };
    let (filter, handle) = reload::Layer::new(filter);
    let lines =
        tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(colours && format == Format::Text);
    let lines = match format {
        Format::Text => lines.boxed(),
        Format::Json => lines.json().flatten_event(true).boxed(),
    };
    let subscriber = tracing_subscriber::registry().with(filter).with(lines);
    Ok((subscriber, Handle { filter: handle, pinned: rust_log.is_some() }))
}

/// Everything up to `level`, and the talkative ones up to `warn` at most.
fn filter_of(level: &str) -> Result<EnvFilter, Error> {
    let wanted = level_of(level).ok_or_else(|| Error::UnknownLevel { level: level.into() })?;
    let quiet = wanted.min(LevelFilter::WARN);
    let directives = TALKATIVE.iter().fold(wanted.to_string(), |all, name| format!("{all},{name}={quiet}"));
    EnvFilter::try_new(directives).map_err(Error::InvalidFilter)
}

/// By name only: a filter would take a misspelt level for the name of a module and log everything of it.
fn level_of(name: &str) -> Option<LevelFilter> {
    Some(match name {
        "off" => LevelFilter::OFF,
        "error" => LevelFilter::ERROR,
        "warn" => LevelFilter::WARN,
        "info" => LevelFilter::INFO,
        "debug" => LevelFilter::DEBUG,
        "trace" => LevelFilter::TRACE,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing::{debug, info, subscriber::with_default, warn};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Lines {
        fn taken(&self) -> String {
            String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap()
        }
    }

    /// Runs `work` under a log of its own and returns what was written.
    fn logged(
        format: Format,
        level: &str,
        rust_log: Option<&str>,
        work: impl FnOnce(&Handle, &Lines),
    ) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let (subscriber, handle) = build(format, level, rust_log, false, move || writer.clone()).unwrap();
        with_default(subscriber, || work(&handle, &lines));
        lines.taken()
    }

    #[test]
    fn text_lines_carry_fields_and_no_colours() {
        let written = logged(Format::Text, "info", None, |_, _| info!(upstream = "x", "child restarted"));
        assert!(written.contains("child restarted"), "{written}");
        assert!(written.contains(r#"upstream="x""#), "{written}");
        assert!(!written.contains('\u{1b}'), "{written}");
    }

    #[test]
    fn json_lines_are_flat_objects() {
        let written = logged(Format::Json, "info", None, |_, _| warn!(session = "s", "slow"));
        let line: serde_json::Value = serde_json::from_str(&written).unwrap();
        assert_eq!(line["message"], "slow");
        assert_eq!(line["session"], "s");
        assert_eq!(line["level"], "WARN");
    }

    #[test]
    fn the_level_changes_while_running() {
        let written = logged(Format::Text, "warn", None, |handle, lines| {
            info!("before");
            assert!(handle.set_level("info").unwrap());
            info!("after");
            let so_far = lines.taken();
            assert!(so_far.contains("after") && !so_far.contains("before"), "{so_far}");
            assert!(handle.set_level("off").unwrap());
            warn!("silence");
        });
        assert_eq!(written, "");
    }

    #[test]
    fn the_raised_level_writes() {
        let written = logged(Format::Text, "warn", None, |handle, _| {
            handle.set_level("debug").unwrap();
            debug!("now");
        });
        assert!(written.contains("now"));
    }

    #[test]
    fn rust_log_wins_over_the_level_and_its_changes() {
        let written = logged(Format::Text, "error", Some("debug"), |handle, _| {
            debug!("wanted");
            assert!(!handle.set_level("off").unwrap());
            debug!("still wanted");
        });
        assert!(written.contains("wanted") && written.contains("still wanted"), "{written}");
    }

    #[test]
    fn talkative_dependencies_stay_quiet() {
        let written = logged(Format::Text, "trace", None, |_, _| {
            debug!(target: "h2::codec", "frame");
            warn!(target: "h2::codec", "trouble");
        });
        assert!(!written.contains("frame") && written.contains("trouble"), "{written}");
        let written = logged(Format::Text, "error", None, |_, _| warn!(target: "h2", "trouble"));
        assert_eq!(written, "", "a lower level lowers theirs too");
    }

    #[test]
    fn a_misspelt_level_is_an_error_and_not_a_target() {
        for level in ["inof", "", "info,hyper=trace", "INFO ", "3"] {
            assert!(matches!(filter_of(level), Err(Error::UnknownLevel { .. })), "{level:?}");
        }
        assert!(
            ["off", "error", "warn", "info", "debug", "trace"]
                .into_iter()
                .all(|level| filter_of(level).is_ok())
        );
    }

    #[test]
    fn a_bad_rust_log_is_an_error() {
        let outcome = build(Format::Text, "info", Some("a=b=c"), false, io::sink);
        assert!(matches!(outcome, Err(Error::InvalidFilter(_))));
    }
}
