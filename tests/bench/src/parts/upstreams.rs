//! Calls that pass through to a server behind the gateway, next to that server itself and to nginx in front of it.

use anyhow::{Context as _, Result};

use super::Settings;
use crate::{
    bare::Bare,
    nginx::{self, Nginx},
    report::{Section, Table},
    rounds::{Measured, Side, compare, interleave, latencies, middle},
    statistics::Spread,
    subject::{self, Subject},
    template::{Caller, Era},
    upstream::{ECHO, Options, Remote, configured_child},
};

/// Of the requests per second of the upstream called directly, at [`JUDGED`] connections.
const OF_DIRECT: f64 = 0.50;
/// Of those through nginx.
const OF_NGINX: f64 = 0.70;
/// CPU time of a call, of that of a bare server that answers the same.
const COST: f64 = 2.5;
/// Latency that is added to a single call, of what nginx adds.
const ADDED: f64 = 1.3;
/// Requests per second to a child process, of those to a remote server.
const OF_REMOTE: f64 = 0.80;
const JUDGED: usize = 64;

pub(super) async fn run(settings: &Settings) -> Result<Section> {
    let program = nginx::find().await;
    let mut section = Section::new();
    let mut table = Table::new([
        "version",
        "connections",
        "server",
        "req/s",
        "of direct",
        "of nginx",
        "p50 / p99 µs",
        "CPU µs per call",
        "core busy",
    ]);
    for era in Era::ALL {
        let stage = Stage::set(settings, era, program).await?;
        for connections in [1, JUDGED] {
            let found = stage.measure(settings, connections).await?;
            found.list(era, connections, &mut table);
            if connections == JUDGED {
                found.judge_rates(era, &mut section);
            } else {
                found.judge_latency(era, &mut section);
            }
        }
    }
    section.table(table);
    if program.is_none() {
        section.note(
            "nginx is not installed, so nothing was compared with it; on Debian: apt-get install nginx-light",
        );
    }
    section.note(
        "Calls are `tools/call` of one tool, over 100 sessions; a legacy client calls a legacy server, a modern one a modern \
         server. `remote` is the gateway in front of that server over HTTP, `child` in front of the same answers from a child \
         process, `nginx` a plain reverse proxy with one worker that keeps its connections, `bare` a hyper server that answers \
         one of the gateway's own answers as a constant. CPU times are those of the named process alone, `direct` those of the \
         upstream.",
    );
    section.note(
        "The gateway, nginx and the bare server have a core to themselves; the load generator and the upstream share another, \
         which may be what limits them. The load generator sleeps while it waits, and whoever answers pays for waking it.",
    );
    Ok(section)
}

/// Everybody who is called, each ready.
struct Stage {
    direct: Side,
    nginx: Option<Side>,
    bare: Side,
    remote: Side,
    child: Side,
    _upstream: Remote,
    _nginx: Option<Nginx>,
    _bare: Bare,
    _subject: Subject,
}

impl Stage {
    async fn set(settings: &Settings, era: Era, program: Option<&str>) -> Result<Self> {
        let cores = &settings.cores;
        let options = Options::new(era, 1, cores);
        let upstream = Remote::start(options).await?;
        let configured =
            [("remote".to_owned(), upstream.configured()), ("child".to_owned(), configured_child(options)?)];
        let mut subject = cores.start(Subject::start_before(&configured)).await?;
        let pid = subject.pid();
        let token = subject.caller.token.clone();
        let at = |address| Caller { address, token: token.clone() };
        let direct = subject::upstream_calls(&at(upstream.address), era, ECHO).await?;
        let remote = subject::upstream_calls(&subject.caller, era, &format!("remote__{ECHO}")).await?;
        let child = subject::upstream_calls(&subject.caller, era, &format!("child__{ECHO}")).await?;
        let constant = subject::constant(&remote).await?;
        let bare = cores.start(Bare::start(&constant)).await?;
        let (mut proxy, mut proxied) = (None, None);
        if let Some(program) = program {
            let started = cores.start(Nginx::start(program, upstream.address)).await?;
            let load =
                subject::upstream_calls(&at(started.address), era, ECHO).await.context("through nginx")?;
            proxied = Some(Side { load, pid: started.pid()? });
            proxy = Some(started);
        }
        Ok(Self {
            direct: Side { load: direct, pid: upstream.pid()? },
            nginx: proxied,
            bare: Side { load: remote.to_bare(bare.address), pid: bare.pid()? },
            remote: Side { load: remote, pid },
            child: Side { load: child, pid },
            _upstream: upstream,
            _nginx: proxy,
            _bare: bare,
            _subject: subject,
        })
    }

    async fn measure(&self, settings: &Settings, connections: usize) -> Result<Found> {
        let with = |side: &Side| Side { load: side.load.with_connections(connections), pid: side.pid };
        let sides: Vec<Side> = [&self.direct, &self.bare, &self.remote, &self.child]
            .into_iter()
            .chain(&self.nginx)
            .map(with)
            .collect();
        let found = interleave(&sides.iter().collect::<Vec<_>>(), settings.plan()).await?;
        let mut found = found.into_iter();
        let mut next = || found.next().context("every side was measured");
        Ok(Found { direct: next()?, bare: next()?, remote: next()?, child: next()?, nginx: next().ok() })
    }
}

struct Found {
    direct: Vec<Measured>,
    bare: Vec<Measured>,
    remote: Vec<Measured>,
    child: Vec<Measured>,
    nginx: Option<Vec<Measured>>,
}

impl Found {
    fn judge_rates(&self, era: Era, section: &mut Section) {
        let era = era.name();
        let cost = |measured: &Measured| measured.cost;
        let at_least = |section: &mut Section, what: &str, ratio: Spread, budget: f64| {
            let what = format!("{era}, {JUDGED} connections: {what}");
            section.at_least(what, ratio.median, ratio.to_string(), budget, "");
        };
        let ratio = compare(&self.remote, &self.direct, Measured::rate);
        at_least(section, "remote, req/s of the direct upstream", ratio, OF_DIRECT);
        match &self.nginx {
            Some(nginx) => {
                let ratio = compare(&self.remote, nginx, Measured::rate);
                at_least(section, "remote, req/s of nginx", ratio, OF_NGINX);
            }
            None => skipped(section, era, "remote, req/s of nginx"),
        }
        let ratio = compare(&self.child, &self.remote, Measured::rate);
        at_least(section, "child, req/s of remote", ratio, OF_REMOTE);
        let ratio = compare(&self.remote, &self.bare, cost);
        let what = format!("{era}, {JUDGED} connections: remote, CPU per call of bare hyper");
        section.at_most(what, ratio.median, format!("{ratio} ×"), COST, " ×");
        let ratio = compare(&self.child, &self.bare, cost);
        let what = format!("{era}, {JUDGED} connections: child, CPU per call of bare hyper");
        section.value(what, format!("{ratio} ×"));
    }

    fn judge_latency(&self, era: Era, section: &mut Section) {
        let era = era.name();
        let Some(nginx) = &self.nginx else {
            return skipped(section, era, "remote, added p50 of nginx's");
        };
        let ratio = added(&self.remote, nginx, &self.direct);
        let what = format!("{era}, 1 connection: remote, added p50 of nginx's");
        section.at_most(what, ratio.median, format!("{ratio} ×"), ADDED, " ×");
        let ratio = added(&self.child, nginx, &self.direct);
        section.value(format!("{era}, 1 connection: child, added p50 of nginx's"), format!("{ratio} ×"));
    }

    fn list(&self, era: Era, connections: usize, table: &mut Table) {
        let nginx = self.nginx.as_deref();
        let sides = [
            ("direct", Some(&*self.direct)),
            ("nginx", nginx),
            ("remote", Some(&*self.remote)),
            ("child", Some(&*self.child)),
            ("bare", Some(&*self.bare)),
        ];
        for (name, side) in sides {
            let Some(side) = side else { continue };
            let of = |other: &[Measured]| compare(side, other, Measured::rate).to_string();
            table.push([
                era.name().to_owned(),
                connections.to_string(),
                name.to_owned(),
                format!("{:.0}", middle(side, Measured::rate)),
                of(&self.direct),
                nginx.map_or_else(|| "–".to_owned(), of),
                latencies(side),
                format!("{:.1}", middle(side, |measured| measured.cost)),
                format!("{:.0} %", 100.0 * middle(side, |measured| measured.busy)),
            ]);
        }
    }
}

fn skipped(section: &mut Section, era: &str, what: &str) {
    section.value(format!("{era}: {what}"), "skipped: nginx is not installed");
}

/// The median latency that one way adds to the direct one, of what the other way adds, round by round.
fn added(one: &[Measured], other: &[Measured], direct: &[Measured]) -> Spread {
    let beyond = |way: &Measured, direct: &Measured| way.latency() - direct.latency();
    let rounds = one.iter().zip(other).zip(direct);
    Spread::of(rounds.map(|((one, other), direct)| beyond(one, direct) / beyond(other, direct)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::load::Round;

    #[test]
    fn what_is_added_is_beyond_the_direct_way() {
        let took = |microseconds: u32| {
            let latencies = vec![microseconds * 1000];
            [Measured {
                round: Round { calls: 1, elapsed: Duration::from_secs(1), latencies },
                cost: 1.0,
                busy: 1.0,
            }]
        };
        let ratio = added(&took(50), &took(40), &took(20));
        assert!((ratio.median - 1.5).abs() < f64::EPSILON, "{ratio}");
    }
}
