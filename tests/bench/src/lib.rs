//! Benchmarks: ratios to a baseline measured in the same run.
//!
//! Each file of `parts` answers one question about what `./dist` builds and holds it against its budget. Everything below
//! serves them: `load` makes calls as fast as a server takes them, `bare` is the server that cannot be beaten, `subject`
//! starts the gateway, `cores` keeps the two apart, `callgrind` counts instructions, `report` writes it all down.

pub mod bare;
pub mod callgrind;
pub mod cores;
pub mod cpu;
pub mod driver;
pub mod facts;
pub mod load;
pub mod parts;
pub mod record;
pub mod report;
pub mod results;
pub mod statistics;
pub mod subject;
pub mod template;
