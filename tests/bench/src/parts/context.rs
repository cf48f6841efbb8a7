//! What context fields cost: instructions of their steps against those of a whole call, and latency with and without.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::Settings;
use crate::{
    callgrind::{self, Calls},
    driver::Step,
    load::Limit,
    report::{Section, Table},
    statistics::{Spread, percentile},
    subject::{self, Extra, Subject},
    template::Era,
};

/// Of a call's instructions, in percent.
const INJECT_AND_STRIP: f64 = 2.0;
/// With the three headers against without.
const WITH_HEADERS: f64 = 1.05;

pub(super) async fn run(settings: &Settings) -> Result<Section> {
    ensure!(
        callgrind::is_available().await,
        "valgrind is not installed; on Debian: apt-get install valgrind"
    );
    let mut section = Section::new();
    instructions(settings, &mut section).await?;
    latency(settings, &mut section).await?;
    Ok(section)
}

async fn instructions(settings: &Settings, section: &mut Section) -> Result<()> {
    let calls = settings.choose(Calls { few: 500, many: 2500 }, Calls { few: 50, many: 150 });
    let plain = callgrind::gateway_call(calls, Era::Legacy, Extra::Plain).await?;
    let headers = callgrind::gateway_call(calls, Era::Legacy, Extra::Headers).await?;
    let fields = callgrind::gateway_call(calls, Era::Legacy, Extra::Fields).await?;
    let modern = callgrind::gateway_call(calls, Era::Modern, Extra::Plain).await?;
    let mut steps = Vec::new();
    for step in [Step::StripPlain, Step::StripFields, Step::Given, Step::Inject, Step::Resolve, Step::Nothing]
    {
        steps.push(callgrind::driver_step(Calls { few: 1000, many: 11_000 }, &step.name()).await?);
    }
    let [strip_plain, strip_fields, given, inject, resolve, nothing] = steps.as_slice() else {
        anyhow::bail!("six steps")
    };
    let [strip_plain, strip_fields] = [strip_plain, strip_fields].map(|strip| strip - given);
    let [inject, resolve] = [inject, resolve].map(|step| step - nothing);
    let share = |strip: f64| 100.0 * (inject + strip) / plain;
    let usual = share(strip_plain);
    let what = "strip of usual arguments and inject of all three fields, of a call's instructions";
    section.at_most(what, usual, format!("{usual:.2} %"), INJECT_AND_STRIP, " %");
    let what = "the same for a caller that wrote all three fields into its arguments";
    section.value(what, format!("{:.2} %", share(strip_fields)));
    // Most of this is reading three more headers, which every server must; the budget is for what a caller notices.
    let what = "instructions of a call with the three X- headers, against one without";
    section.value(what, format!("{:.3}", headers / plain));
    let mut table = Table::new(["instructions", "each"]);
    for (what, count) in [
        ("call, 2025-11-25", plain),
        ("call, 2026-07-28, named session", modern),
        ("call, 2025-11-25, with the three X- headers", headers),
        ("call, 2025-11-25, with the three fields forged", fields),
        ("strip, nothing to remove", strip_plain),
        ("strip, three fields", strip_fields),
        ("inject, three fields", inject),
        ("resolve, from headers", resolve),
    ] {
        table.push([what.to_owned(), format!("{count:.0}")]);
    }
    section.table(table);
    section.note(
        "`strip` is told by the scan of the frame whether there is anything to remove, and that look is part of the scan. \
         It takes its arguments over: the copy that the loop makes for each is not counted. \
         A guided build was guided by these very steps too.",
    );
    section.note(format!(
        "Instructions of the gateway's process in user mode: callgrind, ({} calls - {} calls) / {}, one connection.",
        calls.many,
        calls.few,
        calls.many - calls.few,
    ));
    Ok(())
}

async fn latency(settings: &Settings, section: &mut Section) -> Result<()> {
    let subject = settings.cores.start(Subject::start()).await?;
    let without = subject::calls(&subject.caller, Era::Legacy, Extra::Plain).await?;
    let with = subject::calls(&subject.caller, Era::Legacy, Extra::Headers).await?;
    let limit =
        Limit { time: settings.choose(Duration::from_secs(1), Duration::from_millis(200)), calls: u64::MAX };
    without.run(limit).await?;
    with.run(limit).await?;
    let mut ratios = Vec::new();
    for round in 0..settings.choose(21, 5) {
        let (with, without) = if round % 2 == 0 {
            let with = with.run(limit).await?;
            (with, without.run(limit).await?)
        } else {
            let without = without.run(limit).await?;
            (with.run(limit).await?, without)
        };
        ratios.push(percentile(&with.latencies, 50) / percentile(&without.latencies, 50));
    }
    let ratio = Spread::of(ratios);
    let what = "p50 of a call with the three X- headers, against one without, 1 connection";
    section.at_most(what, ratio.median, format!("{ratio:.3}"), WITH_HEADERS, "");
    Ok(())
}
