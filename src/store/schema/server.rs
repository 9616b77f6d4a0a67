//! The database server: what it is, and whether Outbill can work with it.

use std::collections::HashMap;

use super::link::{Ask, connect};
use crate::{finding::Finding, store::settings::Settings};

/// Connections that are compared to find read/write splitting; each is asked in several ways.
const COMPARED_LINKS: usize = 2;

/// The smallest packet limit that the longest statement of ours fits with room to spare.
const PACKET_MIN: u64 = 4 << 20;

/// Older servers lack what the statements need, and are no longer maintained.
const OLDEST_MYSQL: (u32, u32) = (5, 7);
const OLDEST_MARIADB: (u32, u32) = (10, 5);

/// A MySQL or MariaDB server as one connection sees it.
#[derive(Debug, Default)]
pub(super) struct Server {
    /// As the server gives it: `10.11.6-MariaDB-log`.
    pub(super) version: String,
    pub(super) is_mariadb: bool,
    /// The account as GRANT takes it: `'outbill'@'%'`.
    pub(super) account: String,
    /// The schema of the connection, where it has one.
    pub(super) schema: Option<String>,
    /// Whether names of tables are compared without regard to case.
    pub(super) folds_table_names: bool,
    variables: HashMap<String, String>,
}

impl Server {
    pub(super) async fn look(link: &mut dyn Ask) -> sqlx::Result<Self> {
        let sql = "/* outbill:inspect_variables */ SHOW VARIABLES WHERE Variable_name IN ('version', 'log_bin', 'binlog_format', \
                   'read_only', 'super_read_only', 'innodb_read_only', 'transaction_read_only', 'tx_read_only', 'offline_mode', \
                   'max_allowed_packet', 'lower_case_table_names')";
        let pair = |answer: Vec<Option<String>>| {
            let mut values = answer.into_iter().flatten();
            Some((values.next()?.to_lowercase(), values.next()?))
        };
        let variables: HashMap<String, String> = link.ask(sql).await?.into_iter().filter_map(pair).collect();
        let version = variables.get("version").cloned().unwrap_or_default();
        Ok(Self {
            is_mariadb: version.to_lowercase().contains("mariadb"),
            version,
            account: account(&link.ask_one("SELECT CURRENT_USER()").await?.unwrap_or_default()),
            schema: link.ask_one("SELECT DATABASE()").await?,
            folds_table_names: variables.get("lower_case_table_names").is_some_and(|value| value != "0"),
            variables,
        })
    }

    /// An expression over `STATISTICS`: `YES` where the optimizer uses the index.
    pub(super) fn index_visibility(&self) -> &'static str {
        match (self.is_mariadb, self.release()) {
            (true, release) if release >= (10, 6) => "IF(IGNORED = 'NO', 'YES', 'NO')",
            (false, release) if release >= (8, 0) => "IS_VISIBLE",
            _ => "'YES'",
        }
    }

    /// Everything about the server that can be told from its variables.
    pub(super) fn findings(&self, max_payload: Option<u64>) -> Vec<Finding> {
        [
            Some(self.version_finding()),
            self.binlog_finding(),
            self.read_only_finding(),
            self.packet_finding(max_payload),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// The first two numbers of the version.
    fn release(&self) -> (u32, u32) {
        let mut numbers = self.version.split(|c: char| !c.is_ascii_digit()).map(|digits| digits.parse().unwrap_or(0));
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
    }

    fn version_finding(&self) -> Finding {
        let (name, oldest) = if self.is_mariadb { ("MariaDB", OLDEST_MARIADB) } else { ("MySQL", OLDEST_MYSQL) };
        let point = "server version";
        if self.release() >= oldest {
            return Finding::good(point, format!("{name} {}", self.version));
        }
        let (major, minor) = oldest;
        let remedy = format!("upgrade the server to {name} {major}.{minor} or later");
        Finding::bad(point, format!("{name} {} is too old", self.version), remedy)
    }

    fn binlog_finding(&self) -> Option<Finding> {
        let is_statement = self.is("binlog_format", "STATEMENT");
        (self.is("log_bin", "ON") && is_statement).then(|| {
            Finding::bad(
                "server binlog_format",
                "binlog_format is STATEMENT: writes at READ COMMITTED, as Outbill's, fail with error 1665",
                "SET GLOBAL binlog_format = 'ROW'; and the same in the server's configuration file; then reconnect",
            )
        })
    }

    fn read_only_finding(&self) -> Option<Finding> {
        let names = [
            "super_read_only",
            "read_only",
            "innodb_read_only",
            "transaction_read_only",
            "tx_read_only",
            "offline_mode",
        ];
        let on =
            |name: &&str| self.variables.get(*name).is_some_and(|value| !matches!(value.as_str(), "OFF" | "0" | ""));
        let name = names.into_iter().find(on)?;
        Some(Finding::bad(
            "server read-only",
            format!("{name} is on: bills could be read, but not settled"),
            format!("point store.url at the primary server; if this is the primary: SET GLOBAL {name} = OFF;"),
        ))
    }

    fn packet_finding(&self, max_payload: Option<u64>) -> Option<Finding> {
        let packet: u64 = self.variables.get("max_allowed_packet")?.parse().ok()?;
        // Other columns of the row, and the protocol's own bytes.
        let needed = max_payload.unwrap_or(0).saturating_add(64 << 10).max(PACKET_MIN);
        (packet < needed).then(|| {
            Finding::warning(
                "server max_allowed_packet",
                format!("max_allowed_packet is {packet}: rows near that many bytes cannot be read, and {needed} may be needed"),
                // The server takes multiples of 1,024.
                format!("SET GLOBAL max_allowed_packet = {}; and the same in the server's configuration file", needed.next_multiple_of(1024)),
            )
        })
    }

    fn is(&self, name: &str, value: &str) -> bool {
        self.variables.get(name).is_some_and(|found| found.eq_ignore_ascii_case(value))
    }
}

/// Asks several connections, in each of the ways that a proxy might send elsewhere, which server answers.
pub(super) async fn splitting(settings: &Settings, is_mariadb: bool) -> anyhow::Result<Finding> {
    let uuid = if is_mariadb { "''" } else { "@@server_uuid" };
    let who = format!(
        "SELECT CONCAT_WS(' ', CONCAT(@@hostname, ':', @@port), CONCAT('id ', @@server_id), NULLIF({uuid}, ''))"
    );
    let locking = format!("{who} FOR UPDATE");
    let mut links = Vec::new();
    for _ in 0..COMPARED_LINKS {
        links.push(connect(settings).await?);
    }
    let mut servers = Vec::new();
    for link in &mut links {
        for sql in [who.as_str(), locking.as_str(), "START TRANSACTION", who.as_str(), "ROLLBACK", who.as_str()] {
            servers.extend(link.ask_one(sql).await?);
        }
    }
    for link in links {
        link.close().await;
    }
    Ok(splitting_finding(servers))
}

fn splitting_finding(mut servers: Vec<String>) -> Finding {
    servers.sort();
    servers.dedup();
    let point = "server identity";
    if let [server] = servers.as_slice() {
        return Finding::good(point, format!("every connection reaches {server}"));
    }
    Finding::bad(
        point,
        format!(
            "different servers answer: {}; a page read from a lagging one would deliver settled bills again",
            servers.join(", ")
        ),
        "point store.url at the primary server, or at a service of the proxy that never splits reads from writes",
    )
}

/// `user@host` as GRANT takes it. The host part holds no `@`.
fn account(current_user: &str) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    match current_user.rsplit_once('@') {
        Some((user, host)) => format!("{}@{}", quoted(user), quoted(host)),
        None => quoted(current_user),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(version: &str, variables: &[(&str, &str)]) -> Server {
        Server {
            version: version.to_owned(),
            is_mariadb: version.contains("MariaDB"),
            variables: variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            ..Server::default()
        }
    }

    fn bad_points(server: &Server) -> Vec<String> {
        server.findings(None).into_iter().filter(Finding::is_bad).map(|finding| finding.point).collect()
    }

    #[test]
    fn a_server_that_is_too_old_is_refused() {
        for (version, refused) in [
            ("5.6.51-log", true),
            ("5.7.44", false),
            ("9.7.4-2", false),
            ("10.4.34-MariaDB", true),
            ("10.11.19-MariaDB-0+deb12u1-log", false),
            ("11.8.2-MariaDB", false),
        ] {
            assert_eq!(bad_points(&server(version, &[])).contains(&"server version".to_owned()), refused, "{version}");
        }
    }

    #[test]
    fn statement_binlogs_and_read_only_servers_are_refused() {
        for (variables, expected) in [
            (&[("log_bin", "ON"), ("binlog_format", "STATEMENT")][..], &["server binlog_format"][..]),
            (&[("log_bin", "OFF"), ("binlog_format", "STATEMENT")], &[]),
            (&[("log_bin", "ON"), ("binlog_format", "MIXED")], &[]),
            (&[("read_only", "ON"), ("super_read_only", "OFF")], &["server read-only"]),
            (&[("read_only", "NO_LOCK_NO_ADMIN")], &["server read-only"]),
            (&[("read_only", "OFF"), ("innodb_read_only", "OFF")], &[]),
        ] {
            assert_eq!(bad_points(&server("8.0.40", variables)), expected, "{variables:?}");
        }
    }

    #[test]
    fn a_packet_limit_below_the_largest_payload_is_a_warning() {
        let small = server("8.0.40", &[("max_allowed_packet", "16777216")]);
        assert!(small.packet_finding(None).is_none());
        assert!(small.packet_finding(Some(64 << 20)).is_some());
    }

    #[test]
    fn two_servers_behind_one_address_are_refused() {
        assert!(!splitting_finding(vec!["a:1 id 1".to_owned(), "a:1 id 1".to_owned()]).is_bad());
        assert!(splitting_finding(vec!["a:1 id 1".to_owned(), "b:1 id 2".to_owned()]).is_bad());
    }

    #[test]
    fn an_account_is_quoted_as_grant_takes_it() {
        assert_eq!(account("out@bill@10.%"), "'out@bill'@'10.%'");
        assert_eq!(account("o'x@%"), "'o''x'@'%'");
    }
}
