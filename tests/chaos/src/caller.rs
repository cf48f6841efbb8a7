//! A client of either era, so that one loop can drive both.

use anyhow::{Context as _, Result};
use moongate_test_support::{Gateway, LegacySession, ModernClient, Outcome};
use serde_json::{Value, json};

use crate::{LEGACY, text_of};

/// One client.
#[derive(Debug)]
pub enum Caller {
    /// With a session.
    Legacy(Box<LegacySession>),
    /// Without.
    Modern(Box<ModernClient>),
}

impl Caller {
    /// As many as wanted, of both eras by turns.
    pub async fn several(gateway: &Gateway, count: usize) -> Result<Vec<Self>> {
        let mut callers = Vec::with_capacity(count);
        for number in 0..count {
            let client = gateway.client();
            callers.push(if number % 2 == 0 {
                Self::Legacy(Box::new(LegacySession::open(&client, LEGACY).await?))
            } else {
                Self::Modern(Box::new(ModernClient::new(&client)))
            });
        }
        Ok(callers)
    }

    /// Calls a tool: the response, whatever it is. An error is that there was none.
    pub async fn call(&self, tool: &str, arguments: &Value) -> Result<Value> {
        let params = json!({"name": tool, "arguments": arguments});
        // On the heap: the futures of requests are large.
        let Outcome { response, .. } = match self {
            Self::Legacy(session) => Box::pin(session.request("tools/call", &params)).await?,
            Self::Modern(client) => Box::pin(client.request("tools/call", &params)).await?,
        };
        Ok(response)
    }

    /// The process that answers for `upstream`, a peer.
    pub async fn pid(&self, upstream: &str) -> Result<u32> {
        let answer = self.call(&format!("{upstream}__whoami"), &json!({})).await?;
        let known: Value = serde_json::from_str(text_of(&answer)).with_context(|| format!("{answer}"))?;
        let pid = known.get("pid").and_then(Value::as_u64).context("a process has an id")?;
        u32::try_from(pid).map_err(Into::into)
    }

    /// Says goodbye, where that is said.
    pub async fn leave(self) -> Result<()> {
        if let Self::Legacy(session) = self {
            let answer = Box::pin(session.delete()).await?;
            anyhow::ensure!(answer.status < 300, "the session stays: {}", answer.status);
        }
        Ok(())
    }
}
