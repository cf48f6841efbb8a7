//! The `moongate` command: arguments, assembly, signals.
//!
//! A library, so that a test can run the very same command with one more backend ([`run_with`]).

use std::{fmt, io::Write as _, process::ExitCode, sync::Arc};

use clap::Parser as _;
use moongate_core::{Backend, Changes};
use moongate_proxy::Member;

use self::{
    args::{Cli, Command, Serve},
    check::Verdict,
    serve::Launch,
    settings::Unusable,
};

mod args;
mod assemble;
mod check;
mod client;
mod doctor;
mod fetch;
mod find;
mod flood;
mod guard;
mod handover;
mod host;
mod listen;
mod notify;
mod output;
mod pipe;
mod ready;
mod reload;
mod runfile;
mod serve;
mod settings;
mod shown;
mod signal;
mod token;
mod tools;
mod upstreams;
mod workspace;

/// A backend beside the built-in ones, listed before them.
#[derive(Clone)]
pub struct Extra {
    /// Its name in configuration, metrics and logs.
    pub name: &'static str,
    /// What answers.
    pub backend: Arc<dyn Backend>,
}

impl Extra {
    fn into_member(self) -> Member {
        Member::builtin(self.name, self.backend)
    }
}

impl fmt::Debug for Extra {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Extra({})", self.name)
    }
}

/// Runs the command of this process's arguments. 0 ended as asked, 1 failed, 2 wrong usage.
pub fn run() -> ExitCode {
    run_with(|_| Vec::new())
}

/// The same with the backends that `extra` makes; they announce changes through what it is given.
pub fn run_with(extra: impl FnOnce(&Changes) -> Vec<Extra> + Send + 'static) -> ExitCode {
    // Before anything else: the supervisor of a child process is this program too.
    if let Some(code) = moongate_launch::launched() {
        return code;
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are errors to clap, and go to standard output; nobody may be there to read them.
            let _written = error.print().is_ok();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match dispatch(cli, extra) {
        Ok(Verdict::Right) => ExitCode::SUCCESS,
        Ok(Verdict::Wrong) => ExitCode::FAILURE,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

fn dispatch(
    cli: Cli,
    extra: impl FnOnce(&Changes) -> Vec<Extra> + Send + 'static,
) -> anyhow::Result<Verdict> {
    match cli.command {
        None => launch(cli.serve, extra)?,
        Some(Command::Serve(arguments)) => launch(arguments, extra)?,
        Some(Command::Stdio(arguments)) => launch(arguments.into(), extra)?,
        Some(Command::Check(arguments)) => return check::check(arguments),
        Some(Command::Token(arguments)) => token::run(arguments)?,
        Some(Command::Tools(arguments)) => return tools::run(&arguments, extra),
        Some(Command::Doctor(arguments)) => return doctor::run(&arguments, extra),
        Some(Command::Schema) => check::schema()?,
        Some(Command::Completions { shell }) => check::completions(shell)?,
    }
    Ok(Verdict::Right)
}

fn launch(
    arguments: Serve,
    extra: impl FnOnce(&Changes) -> Vec<Extra> + Send + 'static,
) -> anyhow::Result<()> {
    Launch { arguments, extra }.run()
}

/// What went wrong, on standard error: one line with its causes, or every problem of a configuration with its place.
fn complain(error: &anyhow::Error) {
    let text = match error.downcast_ref() {
        // Colours are taken out again where nobody sees them.
        Some(Unusable::Wrong(problems)) => problems.render(true),
        _ => format!("moongate: {error:#}"),
    };
    let _written = writeln!(anstream::stderr(), "{}", text.trim_end()).is_ok();
}
