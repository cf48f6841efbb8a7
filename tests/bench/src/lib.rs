//! Benchmarks: ratios to a baseline measured in the same run.
//!
//! Each file of `parts` answers one question about what `./dist` builds and holds it against its budget. Everything below
//! serves them: `load` makes calls as fast as a server takes them, `bare` is the server that cannot be beaten, `subject`
//! starts the gateway, `upstream` is a server behind it, `nginx` stands where the gateway does and understands nothing,
//! `cores` keeps them apart, `rounds` lets them take turns, `callgrind` counts instructions, `report` writes it all down.

pub mod bare;
pub mod callgrind;
pub mod cores;
pub mod cpu;
pub mod driver;
pub mod facts;
pub mod load;
pub mod nginx;
pub mod parts;
pub mod record;
pub mod report;
pub mod results;
pub mod rounds;
pub mod statistics;
pub mod subject;
pub mod template;
pub mod upstream;
