//! The steps of the context fields alone, over and over, for callgrind to count.
//!
//! This program again with another flag: the functions are the gateway's own, called as a call does.

use std::{hint::black_box, sync::Arc};

use anyhow::Result;
use clap::ValueEnum;
use moongate_core::{ContextIds, Raw, principal::Kind};
use moongate_proxy::context::{self, Sources};
use moongate_wire::Params;

/// The flag that makes this program a driver.
pub const FLAG: &str = "--as-driver";

/// What to do over and over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Step {
    /// Only the loop itself.
    Nothing,
    /// Arguments that are there already, as `strip` is given them.
    Given,
    /// `strip` of arguments without context fields: what almost every call needs.
    StripPlain,
    /// `strip` of arguments that hold all three.
    StripFields,
    /// `inject` of all three.
    Inject,
    /// `resolve` from the headers.
    Resolve,
}

impl Step {
    /// Its name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// Does `step` so many times.
pub fn main(step: Step, count: u64) -> Result<()> {
    let plain = r#"{"memo":"the totals of the invoice are rounded per line, not per page"}"#;
    // As a call's: a part of what was read, shared by whoever holds it.
    let plain = Raw::from_text(plain.to_owned())?;
    let ids = ContextIds {
        session: "0b0f2a52-6d0c-4a55-a8a5-3c1b0fbb6a01".into(),
        durable_session: "0b0f2a52-6d0c-4a55-a8a5-3c1b0fbb6a01".into(),
        assistant: Some("bench-assistant".into()),
        thread: Some("bench-thread".into()),
    };
    let fields = context::inject(&plain, &ids);
    let loaded = moongate_config::load(Vec::new(), "bench.yaml".as_ref(), &|_| None, &|_| Ok(String::new()));
    let config = loaded.map_err(|problems| anyhow::anyhow!("{problems}"))?.config;
    let headers = [Some(ids.session.clone()), ids.assistant.clone(), ids.thread.clone()];
    let given = |arguments: &Raw| black_box(black_box(arguments).clone());
    // A call knows from the scan of its frame whether there is anything to remove.
    let strip = |arguments: &Raw, marked| context::strip(given(arguments), black_box(marked), &|_| false);
    let (params, transport): (Params, Arc<str>) = (Params::default(), "transport".into());
    for _ in 0..count {
        match black_box(step) {
            Step::Nothing => {}
            Step::Given => drop(given(&plain)),
            Step::StripPlain => drop(black_box(strip(&plain, false))),
            Step::StripFields => drop(black_box(strip(&fields, true))),
            Step::Inject => drop(black_box(context::inject(black_box(&plain), black_box(&ids)))),
            Step::Resolve => {
                let sources = Sources {
                    claimed: None,
                    token: None,
                    headers: &headers,
                    meta: params.meta(),
                    transport: Some(&transport),
                };
                drop(black_box(context::resolve(black_box(&sources), Kind::Local, &config.context)));
            }
        }
    }
    Ok(())
}
