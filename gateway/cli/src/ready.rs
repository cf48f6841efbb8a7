//! What a person or a program reads when the gateway is ready.

use std::{fmt::Write as _, path::Path};

/// Where the gateway can be reached.
#[derive(Clone, Debug)]
pub(crate) struct Ready<'a> {
    /// The MCP endpoint.
    pub endpoint: &'a str,
    /// The admin listener's base URL, if there is one.
    pub admin: Option<&'a str>,
    /// The file with the local token.
    pub token_file: &'a Path,
}

impl Ready<'_> {
    /// One line for programs: `moongate ready`, then words of `key=value`.
    pub(crate) fn line(&self) -> String {
        let mut line = format!("moongate ready endpoint={}", self.endpoint);
        if let Some(admin) = self.admin {
            line.push_str(" admin=");
            line.push_str(admin);
        }
        // Last, because a path may hold spaces.
        let _infallible = write!(line, " token={}", self.token_file.display());
        line
    }

    /// The block for people: where things are, and what to paste into an IDE.
    ///
    /// The token itself is not shown: terminals scroll back and logs are kept.
    pub(crate) fn welcome(&self) -> String {
        let Self { endpoint, admin, token_file } = self;
        let token_file = token_file.display();
        let admin = admin.map_or_else(String::new, |admin| format!("\n  Metrics     {admin}/metrics"));
        format!(
            r#"
  Endpoint    {endpoint}
  Token file  {token_file}{admin}

  For your IDE (mcp.json), with the output of `moongate token show` after "Bearer":

    {{
      "mcpServers": {{
        "moongate": {{
          "url": "{endpoint}",
          "headers": {{ "Authorization": "Bearer TOKEN" }}
        }}
      }}
    }}

  or, for an IDE that starts its servers, without a token:

    {{ "mcpServers": {{ "moongate": {{ "command": "moongate", "args": ["stdio"] }} }} }}
"#
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(admin: Option<&str>) -> Ready<'_> {
        Ready {
            endpoint: "http://127.0.0.1:3847/mcp",
            admin,
            token_file: Path::new("/home/me/my state/token"),
        }
    }

    #[test]
    fn the_line_names_endpoint_admin_and_token_file() {
        assert_eq!(
            ready(Some("http://127.0.0.1:3860")).line(),
            "moongate ready endpoint=http://127.0.0.1:3847/mcp admin=http://127.0.0.1:3860 token=/home/me/my state/token"
        );
        assert_eq!(
            ready(None).line(),
            "moongate ready endpoint=http://127.0.0.1:3847/mcp token=/home/me/my state/token"
        );
    }

    #[test]
    fn the_welcome_is_ready_to_paste() {
        insta::assert_snapshot!(ready(Some("http://127.0.0.1:3860")).welcome());
    }
}
