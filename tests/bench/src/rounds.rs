//! Several servers measured in turn, round after round, so that a change of the machine's mood meets them all.

use std::time::Duration;

use anyhow::Result;

use crate::{
    cpu,
    load::{Limit, Load, Round},
    statistics::{Spread, percentile},
};

/// One server under load.
#[derive(Clone, Debug)]
pub struct Side {
    /// What it is asked, and by how many connections.
    pub load: Load,
    /// The process whose CPU time counts.
    pub pid: u32,
}

/// How often, and for how long each time.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How many rounds.
    pub rounds: usize,
    /// How long each server is under load in a round.
    pub time: Duration,
}

/// One round of one server, and what it took.
#[derive(Clone, Debug)]
pub struct Measured {
    /// What the load generator saw.
    pub round: Round,
    /// Microseconds of the server for one call.
    pub cost: f64,
    /// Which part of its core the server used.
    pub busy: f64,
}

impl Side {
    async fn measure(&self, time: Duration) -> Result<Measured> {
        let before = cpu::time_of(self.pid)?;
        let round = self.load.run(Limit { time, calls: u64::MAX }).await?;
        let used = cpu::time_of(self.pid)?.saturating_sub(before).as_secs_f64();
        let elapsed = round.elapsed.as_secs_f64();
        Ok(Measured { cost: 1e6 * used / (round.rate() * elapsed), busy: used / elapsed, round })
    }
}

/// All rounds of each of `sides`, in their order.
pub async fn interleave(sides: &[&Side], plan: Plan) -> Result<Vec<Vec<Measured>>> {
    for side in sides {
        side.measure(plan.time / 4).await?;
    }
    let mut found: Vec<Vec<Measured>> = sides.iter().map(|_| Vec::new()).collect();
    for round in 0..plan.rounds {
        // Whoever comes first may find the machine in another mood, so they take turns.
        for place in 0..sides.len() {
            let turn = (round + place) % sides.len();
            if let (Some(side), Some(found)) = (sides.get(turn), found.get_mut(turn)) {
                found.push(side.measure(plan.time).await?);
            }
        }
    }
    Ok(found)
}

/// How two servers compare, round by round.
pub fn compare(one: &[Measured], other: &[Measured], value: impl Fn(&Measured) -> f64) -> Spread {
    Spread::of(one.iter().zip(other).map(|(one, other)| value(one) / value(other)))
}

/// The value of the middle round.
pub fn middle(rounds: &[Measured], value: impl Fn(&Measured) -> f64) -> f64 {
    Spread::of(rounds.iter().map(value)).median
}

/// `21 / 50`: the median latency and the one that a hundredth exceeds, in microseconds.
pub fn latencies(rounds: &[Measured]) -> String {
    let at = |percent| middle(rounds, |measured| percentile(&measured.round.latencies, percent));
    format!("{:.0} / {:.0}", at(50), at(99))
}

impl Measured {
    /// Calls per second.
    pub fn rate(&self) -> f64 {
        self.round.rate()
    }

    /// The median latency in microseconds.
    pub fn latency(&self) -> f64 {
        percentile(&self.round.latencies, 50)
    }
}

#[cfg(test)]
mod tests {
    use tokio::{net::TcpListener, task::JoinSet};

    use super::*;
    use crate::{bare, load::Ids, template::Caller};

    fn measured(calls: u64, cost: f64) -> Measured {
        let round = Round { calls, elapsed: Duration::from_secs(1), latencies: vec![2000] };
        Measured { round, cost, busy: 1.0 }
    }

    #[test]
    fn ratios_are_those_of_the_rounds_and_not_of_their_middles() {
        let one = [measured(10, 1.0), measured(30, 1.0), measured(20, 1.0)];
        let other = [measured(20, 2.0), measured(30, 2.0), measured(10, 2.0)];
        assert_eq!(compare(&one, &other, Measured::rate), Spread { low: 0.75, median: 1.0, high: 1.5 });
        assert!((compare(&one, &other, |it| it.cost).median - 0.5).abs() < f64::EPSILON);
        assert!((middle(&one, Measured::rate) - 20.0).abs() < f64::EPSILON);
        assert_eq!(latencies(&one), "2 / 2");
    }

    #[tokio::test]
    async fn every_side_is_measured_in_every_round() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut server = JoinSet::new();
        server.spawn(bare::serve(listener, r#"{"id":100000000}"#.into()));
        let template = Caller { address, token: "t".to_owned() }.initialize();
        let load = Load {
            address,
            sessions: vec![vec![template]].into(),
            connections: 1,
            ids: Ids::Constant,
            shares_core: false,
        };
        let side = Side { load, pid: std::process::id() };
        let plan = Plan { rounds: 3, time: Duration::from_millis(20) };
        let found = interleave(&[&side, &side], plan).await.unwrap();
        assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3]);
        assert!(found.iter().flatten().all(|measured| measured.rate() > 0.0 && measured.latency() > 0.0));
    }
}
