//! The product with the conformance fixtures as its first backend: guard, limits, policy and router stay in the path.

use std::{process::ExitCode, sync::Arc};

use moongate_cli::Extra;
use moongate_test_conformance::Fixture;

fn main() -> ExitCode {
    moongate_cli::run_with(|changes| {
        vec![Extra { name: "fixture", backend: Arc::new(Fixture::new(changes)) }]
    })
}
