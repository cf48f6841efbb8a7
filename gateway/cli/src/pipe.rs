//! Standard input and output as a way in: who calls there, and what is offered.

use std::{env, ffi::OsString, sync::Arc};

use anyhow::{Context as _, anyhow, ensure};
use moongate_config::Config;
use moongate_proxy::{Gateway, edge::stdio};
use moongate_security::Secret;
use tracing::info;

/// The environment variable that says who is calling on a pipe.
pub(crate) const TOKEN: &str = "MOONGATE_TOKEN";

/// Who is at the other end of the pipe.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// Says who it is; without one it is the user itself.
    token: Option<Secret>,
    profile: Option<Arc<str>>,
}

impl Caller {
    /// Whoever the environment names, who is offered `profile`.
    pub(crate) fn from_env(profile: Option<&str>, config: &Config) -> anyhow::Result<Self> {
        if let Some(name) = profile {
            ensure!(config.profiles.contains_key(name), "there is no profile called {name}");
        }
        Ok(Self { token: token_of_caller()?, profile: profile.map(Into::into) })
    }

    /// Serves standard input and output until the input ends or `stop` resolves.
    ///
    /// # Errors
    /// When the token is refused.
    pub(crate) async fn serve(
        self,
        gateway: Arc<Gateway>,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> anyhow::Result<()> {
        let Self { token, profile } = self;
        let admitted = gateway.snapshot().gate.admit_local(token.as_ref().map(Secret::expose)).await;
        let admitted = admitted.with_context(|| format!("the token in {TOKEN} is refused"))?;
        info!(transport = "stdio", event = "start", principal = %admitted.principal(), "serving standard input and output");
        let peer = stdio::Peer { admitted, token, profile };
        stdio::serve(gateway, peer, tokio::io::stdin(), tokio::io::stdout(), stop).await;
        Ok(())
    }
}

/// The token of whoever the environment names; none for the user itself.
pub(crate) fn token_of_caller() -> anyhow::Result<Option<Secret>> {
    token(env::var_os(TOKEN))
}

/// A variable that is set was meant to name somebody: whatever is wrong with it, the caller is not taken for the user.
fn token(value: Option<OsString>) -> anyhow::Result<Option<Secret>> {
    let Some(value) = value else { return Ok(None) };
    let text = value.into_string().map_err(|_| anyhow!("the token in {TOKEN} is refused: it is no text"))?;
    ensure!(!text.trim().is_empty(), "{TOKEN} is set and empty; unset it to call as the local user");
    Ok(Some(Secret::new(text.trim().to_owned())))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    #[test]
    fn only_a_variable_that_is_not_set_means_the_user() {
        assert!(token(None).unwrap().is_none());
        assert_eq!(token(Some("abc\n".into())).unwrap().unwrap().expose(), "abc");
        for wrong in [Vec::new(), b" \n".to_vec(), vec![b'a', 0xff]] {
            let error = token(Some(OsString::from_vec(wrong.clone()))).unwrap_err().to_string();
            assert!(error.contains(TOKEN), "{wrong:?}: {error}");
        }
    }

    #[test]
    fn an_unknown_profile_is_an_error() {
        let error = Caller::from_env(Some("nobodys"), &Config::default()).unwrap_err();
        assert_eq!(error.to_string(), "there is no profile called nobodys");
    }
}
