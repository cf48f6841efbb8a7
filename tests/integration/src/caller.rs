//! Callers other than the holder of the local token.

use anyhow::Result;
use moongate_test_support::{Client, Gateway, Home};

/// Issues a token by the command line, as an operator would.
pub async fn token(home: &Home, subject: &str, scopes: &str) -> Result<String> {
    let output =
        home.run(&["token", "issue", "--subject", subject, "--scopes", scopes, "--ttl", "1h"]).await?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "no token for {subject}: {complaint}");
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// A client that holds an issued token.
pub async fn issued(gateway: &Gateway, subject: &str, scopes: &str) -> Result<Client> {
    Ok(gateway.anonymous_client().with_token(&token(gateway.home(), subject, scopes).await?))
}
