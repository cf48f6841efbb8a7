//! The `moongate` command; everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    moongate_cli::run()
}
