//! Whether a caller who holds a stream open would still be let in: a token may expire or be revoked meanwhile.

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, Uri, Version, header};
use moongate_core::Principal;
use moongate_security::{Conn, Knock};

use super::Visit;
use crate::gateway::Gateway;

/// How often an open stream's caller is asked for again.
const RECHECK: Duration = Duration::from_secs(15);

/// What the gate was shown when the stream was opened.
pub(super) struct Standing {
    gateway: Arc<Gateway>,
    principal: Principal,
    conn: Conn,
    headers: HeaderMap,
    uri: Uri,
    version: Version,
}

impl Standing {
    /// The caller of `visit`, with the headers the gate reads and no others.
    pub(super) fn of(visit: &Visit<'_>) -> Self {
        let shown = [header::HOST, header::ORIGIN, header::AUTHORIZATION];
        let headers = shown
            .into_iter()
            .filter_map(|name| Some((name.clone(), visit.head.headers.get(&name)?.clone())))
            .collect();
        Self {
            gateway: Arc::clone(visit.gateway),
            principal: visit.admitted.principal().clone(),
            conn: visit.conn.gate.clone(),
            headers,
            uri: visit.head.uri.clone(),
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
            let knock = Knock { conn, headers, uri, version: *version };
            let admitted = self.gateway.snapshot().gate.admit(&knock).await;
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
