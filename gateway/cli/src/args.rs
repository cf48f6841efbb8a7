//! The command line: what can be asked for, and how it is explained.
//!
//! Only shapes and help texts. What a command does is in the module of its name.

#![expect(clippy::doc_markdown, reason = "the comments are the help text, which is shown as it stands")]

use std::{net::IpAddr, path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

const EXAMPLES: &str = "\
Examples:
  moongate                        serve everything on 127.0.0.1:3847, with a fresh token
  moongate --config team.yaml     the same, configured
  moongate stdio                  speak MCP on a pipe, for an IDE that starts its servers
  moongate check team.yaml        all problems of a configuration, with line and column
  moongate tools call create_goal --args '{\"goal\": \"Learn Rust\"}'
  moongate doctor                 why is it not working?
  moongate token issue --subject ci --scopes read --ttl 30d

Files:
  ./moongate.yaml                           the configuration; none is needed
  $XDG_CONFIG_HOME/moongate/moongate.yaml   the same, if the first is absent
  $XDG_STATE_HOME/moongate/token            the local token, mode 0600
  $XDG_DATA_HOME/moongate/moongate.db       what the backends keep
  $XDG_RUNTIME_DIR/moongate/                which gateway runs, and where

Signals:
  TERM, INT   finish what runs and exit within 5 s; a second one exits at once
  HUP         read the configuration and the certificate again
  QUIT        hand over to a waiting `moongate serve --upgrade`; without one, go on

Exit status: 0 ended as asked, 1 failed, 2 wrong usage.";

const SERVE_EXAMPLES: &str = "\
Examples:
  moongate serve --http-port 8080    exactly this port; an error if it is taken
  moongate serve --transport both    HTTP, and MCP on standard input and output
  moongate serve --upgrade           replace the running gateway, losing no request

Without --http-port and server.listen the first free port of 3847–3857 is used.
The line on standard error that begins with `moongate ready` names the endpoint,
the admin listener and the token file.";

const ISSUE_EXAMPLES: &str = "\
Examples:
  moongate token issue --subject ci --scopes read --ttl 30d
  moongate token issue --subject alice --scopes read,write --ttl 8h --json";

const TOOLS_EXAMPLES: &str = "\
Examples:
  moongate tools list
  moongate tools show create_goal
  moongate tools call create_goal --args '{\"goal\": \"Learn Rust\"}'
  moongate tools call create_goal --args @goal.json --json
  echo '{\"goal\": \"Learn Rust\"}' | moongate tools call create_goal --args -";

const DOCTOR_EXAMPLES: &str = "\
Examples:
  moongate doctor
  moongate doctor --json
  moongate doctor --tool github__create_issue";

/// One MCP endpoint for every IDE and agent.
#[derive(Debug, Parser)]
#[command(
    name = "moongate",
    version,
    about = "One MCP endpoint for every IDE and agent",
    long_about = "Moongate is one MCP endpoint for every IDE and agent: it speaks Streamable HTTP and stdio in every \
                  protocol version, checks who is calling, and routes each call by name to a backend.\n\n\
                  Without a command it serves.",
    after_long_help = EXAMPLES,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    max_term_width = 110
)]
pub(crate) struct Cli {
    /// What to do; `serve` if nothing is said.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The options of `serve`.
    #[command(flatten)]
    pub serve: Serve,
}

/// What can be done.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the gateway
    #[command(after_long_help = SERVE_EXAMPLES)]
    Serve(Serve),
    /// Speak MCP on standard input and output: short for `serve --transport stdio`
    ///
    /// Nothing but protocol is written to standard output; logs go to standard error. The caller is the holder of the
    /// local token, or whoever MOONGATE_TOKEN names. Ends with its input.
    Stdio(Stdio),
    /// Show all problems of a configuration at once
    ///
    /// Each problem comes with its line and column, what was expected and the nearest valid key. Exits with 1 if there
    /// is one. Nothing is started and nothing is written.
    Check(Check),
    /// Show, replace, issue and revoke tokens
    Token(Token),
    /// List, describe and call the tools of the gateway
    ///
    /// Asks the running gateway of this user; without one, a gateway is put together for as long as the command takes.
    /// With --config, only a gateway that runs with that very file is asked. The caller is the holder of the local
    /// token, or whoever MOONGATE_TOKEN names.
    #[command(after_long_help = TOOLS_EXAMPLES)]
    Tools(Tools),
    /// Say why something does not work
    ///
    /// Looks at the configuration, the running gateway, its token, key and database, and at each server behind it:
    /// whether it answers, in which era and version, what it offers and what is left out, and the end of what it
    /// printed. Without a running gateway every server is started once. Exits with 1 if something is wrong; each
    /// problem comes with a line that says what to do.
    #[command(after_long_help = DOCTOR_EXAMPLES)]
    Doctor(Doctor),
    /// Print the JSON Schema of the configuration file
    Schema,
    /// Print a completion script for a shell
    ///
    /// For bash: moongate completions bash > ~/.local/share/bash-completion/completions/moongate
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// How to run the gateway.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Serve {
    /// The configuration file [default: ./moongate.yaml, then $XDG_CONFIG_HOME/moongate/moongate.yaml]
    #[arg(long, short, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where clients connect
    #[arg(long, value_enum, default_value_t)]
    pub transport: Transport,
    /// The address to listen on, instead of the configured one
    #[arg(long, value_name = "ADDRESS")]
    pub http_bind: Option<IpAddr>,
    /// The port to listen on, instead of the configured one; 0 lets the system choose
    #[arg(long, value_name = "PORT")]
    pub http_port: Option<u16>,
    /// The file with the local token, made with mode 0600 if absent
    #[arg(long, value_name = "PATH")]
    pub http_token_path: Option<PathBuf>,
    /// How log lines are written, instead of as configured
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
    /// Offer only this profile on standard input and output, and name its path in the ready line
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Take over both listeners of the running gateway of this user, which then ends
    #[arg(long)]
    pub upgrade: bool,
}

/// How to serve standard input and output.
#[derive(Debug, Args)]
pub(crate) struct Stdio {
    /// The configuration file [default: ./moongate.yaml, then $XDG_CONFIG_HOME/moongate/moongate.yaml]
    #[arg(long, short, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Offer only this profile
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// How log lines are written, instead of as configured
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
}

/// What to check.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The configuration file [default: the one `serve` would use]
    pub file: Option<PathBuf>,
    /// Print the problems as JSON
    #[arg(long)]
    pub json: bool,
}

/// What to do with tokens.
#[derive(Debug, Args)]
pub(crate) struct Token {
    /// The configuration file [default: the one `serve` would use]
    #[arg(long, short, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// Which of them.
    #[command(subcommand)]
    pub action: TokenAction,
}

/// What can be done with tokens.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenAction {
    /// Print the local token, made if there is none
    Show,
    /// Replace the local token; a running gateway takes it up at once
    Rotate {
        /// Replace the signing key too, which voids every issued token
        #[arg(long)]
        key: bool,
    },
    /// Sign a token with limited scopes and print it
    #[command(after_long_help = ISSUE_EXAMPLES)]
    Issue {
        /// Whom it is for; shown in logs and lists
        #[arg(long, value_name = "NAME")]
        subject: String,
        /// What its holder may do, separated by commas: read, write, control, rules.write, admin, context.write, …
        #[arg(long, value_name = "SCOPES", value_delimiter = ',', required = true)]
        scopes: Vec<String>,
        /// How long it is good for, such as 8h or 30d
        #[arg(long, value_name = "TIME", value_parser = ttl)]
        ttl: Duration,
    },
    /// List the issued tokens that are still good, without the tokens themselves
    List,
    /// Void an issued token, by the id that `list` shows
    Revoke {
        /// The token's id
        id: String,
    },
}

/// What to do with tools.
#[derive(Debug, Args)]
pub(crate) struct Tools {
    /// The configuration file [default: that of the running gateway, or the one `serve` would use]
    #[arg(long, short, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Only what this profile offers
    #[arg(long, global = true, value_name = "NAME")]
    pub profile: Option<String>,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// Which of them.
    #[command(subcommand)]
    pub action: ToolsAction,
}

/// What can be done with tools.
#[derive(Debug, Subcommand)]
pub(crate) enum ToolsAction {
    /// List the tools you may call
    List,
    /// Print a tool's definition, with its schemas
    Show {
        /// The tool's name
        name: String,
    },
    /// Call a tool and print what it answers
    ///
    /// Progress goes to standard error as it comes. A tool that asks something is answered on the terminal, if there is
    /// one: Ctrl-D declines, Ctrl-C cancels. Exits with 1 if the tool fails.
    Call {
        /// The tool's name
        name: String,
        /// Its arguments: a JSON object, @ and the name of a file with one, or - to read one from standard input
        #[arg(long, value_name = "JSON", default_value = "{}", hide_default_value = true)]
        args: String,
    },
}

/// What to look into.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// The configuration file [default: that of the running gateway, or the one `serve` would use]
    #[arg(long, short, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Say why this tool is missing, too
    #[arg(long, value_name = "NAME")]
    pub tool: Option<String>,
    /// The profile under which it is missing
    #[arg(long, value_name = "NAME", requires = "tool")]
    pub profile: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Where clients connect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    /// Standard input and output
    Stdio,
    /// A port
    #[default]
    Http,
    /// Both, in one process
    Both,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people
    Text,
    /// One JSON object per line
    Json,
}

impl From<Stdio> for Serve {
    fn from(stdio: Stdio) -> Self {
        let Stdio { config, profile, log_format } = stdio;
        Self { config, profile, log_format, transport: Transport::Stdio, ..Self::default() }
    }
}

impl Serve {
    /// The options that make no sense without a port, as they were given.
    pub(crate) fn http_options(&self) -> Vec<&'static str> {
        let given = [
            ("--http-bind", self.http_bind.is_some()),
            ("--http-port", self.http_port.is_some()),
            ("--http-token-path", self.http_token_path.is_some()),
            ("--upgrade", self.upgrade),
        ];
        given.into_iter().filter_map(|(name, given)| given.then_some(name)).collect()
    }
}

fn ttl(text: &str) -> Result<Duration, String> {
    let ttl = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if ttl < Duration::from_secs(1) { Err("at least one second".to_owned()) } else { Ok(ttl) }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn parse(arguments: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once("moongate").chain(arguments.split_whitespace()))
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn serve_needs_no_name() {
        let plain = parse("--http-port 8080 --transport both").unwrap();
        assert!(plain.command.is_none());
        assert_eq!((plain.serve.http_port, plain.serve.transport), (Some(8080), Transport::Both));
        let Some(Command::Serve(named)) = parse("serve --http-port 8080").unwrap().command else { panic!() };
        assert_eq!(named.http_port, Some(8080));
    }

    #[test]
    fn stdio_is_short_for_a_transport() {
        let Some(Command::Stdio(stdio)) = parse("stdio --profile review").unwrap().command else { panic!() };
        let serve = Serve::from(stdio);
        assert_eq!((serve.transport, serve.profile.as_deref()), (Transport::Stdio, Some("review")));
        assert!(serve.http_options().is_empty());
    }

    #[test]
    fn options_of_the_port_are_recognised_so_that_stdio_can_warn() {
        let serve = parse("--transport stdio --http-port 1 --http-bind ::1").unwrap().serve;
        assert_eq!(serve.http_options(), ["--http-bind", "--http-port"]);
    }

    #[test]
    fn wrong_usage_is_status_two() {
        for wrong in [
            "serve --http-port many",
            "--transport tcp",
            "token",
            "token issue --subject x --ttl 1h",
            "token issue --subject x --scopes read --ttl 0s",
            "token issue --subject x --scopes read --ttl soon",
            "frobnicate",
            "--http-port 1 serve",
        ] {
            assert_eq!(parse(wrong).unwrap_err().exit_code(), 2, "{wrong}");
        }
    }

    #[test]
    fn help_reads_like_a_manual() {
        let mut all = String::new();
        let mut command = Cli::command().term_width(100);
        command.build();
        let mut pages = vec![command.clone()];
        while let Some(mut page) = pages.pop() {
            let name = page.get_bin_name().unwrap_or("moongate").to_owned();
            all.extend(["$ ", &name, " --help\n", &page.render_long_help().to_string(), "\n"]);
            let commands: Vec<_> = page.get_subcommands().cloned().collect();
            pages.extend(commands.into_iter().rev());
        }
        insta::assert_snapshot!(all.replace(env!("CARGO_PKG_VERSION"), "VERSION"));
    }
}
