//! Where bytes come in and go out: HTTP and stdio.

pub mod body;
pub mod http;
pub mod serve;
pub mod sse;
pub mod stdio;
pub mod tls;
