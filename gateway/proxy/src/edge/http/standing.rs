//! Whether a caller who holds a stream open would still be let in: a token may expire or be revoked meanwhile.

use std::{sync::Arc, time::Duration};

use http::{Uri, Version};
use moongate_core::Principal;
use moongate_security::{Conn, Headers, Knock, Shown};

use super::Visit;
use crate::gateway::Gateway;

/// How often an open stream's caller is asked for again.
const RECHECK: Duration = Duration::from_secs(15);

/// What the gate was shown when the stream was opened.
pub(super) struct Standing {
    gateway: Arc<Gateway>,
    principal: Principal,
    conn: Conn,
    headers: Headers,
    uri: Uri,
    version: Version,
}

impl Standing {
    /// The caller of `visit`, with the headers the gate reads and no others. All copied: a part of the request would keep
    /// the whole buffer it was read into, for as long as the stream is open.
    pub(super) fn of(visit: &Visit<'_>) -> Self {
        let shown = ["host", "origin", "authorization"];
        let headers =
            shown.into_iter().filter_map(|name| Some((name, visit.head.headers.get(name)?))).collect();
        let uri = Uri::try_from(visit.head.uri.to_string()).unwrap_or_default();
        Self {
            gateway: Arc::clone(visit.gateway),
            principal: visit.admitted.principal().clone(),
            conn: visit.conn.gate.clone(),
            headers,
            uri,
            version: visit.head.version,
        }
    }

    /// Resolves when the caller would not be let in any more.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn lost(&self) {
        loop {
            tokio::time::sleep(RECHECK).await;
            let Self { conn, headers, uri, version, .. } = self;
            let knock = Knock { conn, headers, shown: Shown::read(headers), uri, version: *version };
            let snapshot = self.gateway.snapshot();
            // On the heap: most of the time the stream only waits, and should not carry the gate's room all the while.
            let admitted = Box::pin(snapshot.gate.admit(&knock)).await;
            if !admitted.is_ok_and(|admitted| *admitted.principal() == self.principal) {
                tracing::info!(
                    principal = self.principal.as_str(),
                    "stream ended: its caller is not let in any more"
                );
                return;
            }
        }
    }
}
