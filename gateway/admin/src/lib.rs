//! The admin listener: metrics and health for operators, apart from the endpoint that clients use.
//!
//! In: requests on a socket of its own, and a [`View`] of the running process. Out: read-only pages, some of them for
//! administrators only. It knows neither the request path nor the configuration; what it shows, and who is an
//! administrator, is asked of the view at each request.

mod page;
pub mod server;
pub mod view;

pub use server::serve;
pub use view::{Readiness, View};
