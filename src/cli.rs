//! The command line.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, Subcommand};

/// Delivers the bills that an application wrote in its own transactions, and keeps the books until each one is finished.
#[derive(Debug, Parser)]
#[command(name = "outbill", version, max_term_width = 100, disable_help_subcommand = true, after_help = EXIT_CODES)]
pub struct Cli {
    #[arg(short, long, global = true, value_name = "FILE", help = CONFIG_HELP)]
    pub config: Option<PathBuf>,

    #[command(subcommand)]
    pub command: Command,
}

const CONFIG_HELP: &str = "The configuration [env: OUTBILL_CONFIG] [default: outbill.yaml]";

const EXIT_CODES: &str = "Exit codes: 0 fine, 1 differences or problems found, 64 wrong usage or configuration, \
                          69 a server cannot be reached, 70 a fault of Outbill's own.";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Deliver bills until told to stop
    ///
    /// SIGTERM or SIGINT stops fetching, settles what is in flight and exits with 0, within `shutdown_timeout`. A second
    /// signal stops at once (exit code 130 or 143); bills in flight may then be delivered again after the next start.
    Run,
    /// Make Outbill's own tables
    ///
    /// Makes what is missing and changes nothing else. A table of the same name with another shape is refused.
    Init(Init),
    /// Connect to everything and say what is not in order
    ///
    /// Looks at privileges, table, index, time zone, sinks and exchanges, and prints a remedy for each point that is not in
    /// order. Changes nothing.
    Check(Format),
    /// Show open and failed bills, and what is held
    ///
    /// Counts stop at 10,000 ("≥ 10,000") and each question to the database is bounded in time: safe on any table.
    Status(Format),
    /// Show the exact message that a bill would become
    ///
    /// Nothing is sent and nothing is changed.
    Preview(Preview),
    /// Put failed bills back to pending
    ///
    /// They are tried again at once, with a full number of attempts.
    Retry(Retry),
    /// Let a held route go on
    ///
    /// A route is held after a row of rejections or a fault in its own configuration; `outbill status` says why.
    Release(Release),
    /// Watch the whole job in a minute, with nothing installed
    ///
    /// A temporary shop on SQLite writes orders and bills, and rolls some back; the relay delivers them to a sink that breaks
    /// down on purpose. Ends with a ledger, and with exit code 0 only if it balances.
    Demo(Demo),
    /// Look at the configuration itself
    #[command(subcommand)]
    Config(Config),
}

/// In which form to print.
#[derive(Clone, Copy, Debug, Args)]
pub struct Format {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true))]
pub struct Init {
    /// Print the SQL statements that are missing, for somebody else to run
    #[arg(long, group = "what")]
    pub print: bool,
    /// Run them
    #[arg(long, group = "what")]
    pub apply: bool,
    /// Print the application's table and the least privileges that `run` needs
    #[arg(long, group = "what")]
    pub example: bool,
}

#[derive(Debug, Args)]
pub struct Preview {
    /// The bill's id
    #[arg(long)]
    pub id: String,
    #[command(flatten)]
    pub format: Format,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").required(true))]
pub struct Retry {
    /// The ids of the bills
    #[arg(long, group = "which", num_args = 1.., value_name = "ID")]
    pub id: Vec<String>,
    /// All failed bills of exactly this type
    #[arg(long = "type", group = "which", value_name = "TYPE")]
    pub bill_type: Option<String>,
    /// At most this many, lowest ids first
    #[arg(long, default_value_t = 1_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub limit: u32,
    /// Only say which bills it would be
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub format: Format,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").required(true))]
pub struct Release {
    /// The route's name
    #[arg(group = "which", value_name = "ROUTE")]
    pub route: Option<String>,
    /// All held routes
    #[arg(long, group = "which")]
    pub all: bool,
    /// Only say which routes it would be
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub format: Format,
}

#[derive(Debug, Args)]
pub struct Demo {
    /// How many transactions the shop makes
    #[arg(long, default_value_t = 1_000, value_name = "N", value_parser = clap::value_parser!(u32).range(20..=20_000))]
    pub bills: u32,
    /// The seed of all chance, to see the same run again
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// No live line, even on a terminal
    #[arg(long)]
    pub no_progress: bool,
}

#[derive(Clone, Copy, Debug, Subcommand)]
pub enum Config {
    /// Print the configuration's JSON Schema
    ///
    /// For editors: `outbill config schema > outbill.schema.json`, and as the first line of the YAML file
    /// `# yaml-language-server: $schema=outbill.schema.json`.
    Schema,
    /// Check the configuration without connecting to anything
    Check,
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_help_text_is_as_it_was_reviewed() {
        let mut helps = String::new();
        let mut root = Cli::command().term_width(100);
        root.build();
        for path in ["", "run", "init", "check", "status", "preview", "retry", "release", "demo", "config"] {
            let mut command = root.clone();
            for name in path.split_whitespace() {
                command = command.find_subcommand(name).unwrap().clone();
            }
            writeln!(helps, "$ outbill {path} --help\n{}", command.render_long_help()).unwrap();
        }
        for name in ["schema", "check"] {
            let config = root.find_subcommand("config").unwrap();
            let mut command = config.find_subcommand(name).unwrap().clone();
            writeln!(helps, "$ outbill config {name} --help\n{}", command.render_long_help()).unwrap();
        }
        insta::assert_snapshot!(helps);
    }

    #[test]
    fn exactly_one_choice_is_taken_where_there_are_several() {
        let parses = |line: &str| Cli::try_parse_from(line.split_whitespace()).is_ok();
        for good in [
            "outbill init --print",
            "outbill retry --id 1 2 3 --dry-run",
            "outbill retry --type sms.send --limit 5",
            "outbill release --all",
            "outbill release order.*",
            "outbill -c x.yaml run",
            "outbill run -c x.yaml",
        ] {
            assert!(parses(good), "{good}");
        }
        for bad in [
            "outbill",
            "outbill init",
            "outbill init --print --apply",
            "outbill retry",
            "outbill retry --id 1 --type x",
            "outbill retry --type x --limit 0",
            "outbill release",
            "outbill release a --all",
        ] {
            assert!(!parses(bad), "{bad}");
        }
    }
}
