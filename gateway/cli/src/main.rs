//! The `moongate` command; everything is in the library.

use std::process::ExitCode;

/// A call makes some twenty pieces of memory, of which the largest, its futures, go a slow way through glibc's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    moongate_cli::run()
}
