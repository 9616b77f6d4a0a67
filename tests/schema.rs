//! The inspection of the table, `init` and the GRANTs, on real servers.

mod support;

use outbill::{
    bill::MessageIdForm,
    finding::{Finding, FindingState},
    store::{
        schema::{Database, InitError, Plan, apply, example, inspect, plan},
        settings::Settings,
    },
};
use serde_json::{Value, json};
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use support::databases::{Server, TestDatabase, unique};

/// The application's table of the documentation, its last lines apart: keys, and what follows the columns.
const COLUMNS: &str = "id bigint unsigned NOT NULL AUTO_INCREMENT, biz_type varchar(64) NOT NULL, biz_id varchar(64) NOT NULL, \
    status tinyint NOT NULL DEFAULT 0, payload json DEFAULT NULL, retry_count int NOT NULL DEFAULT 0, \
    next_retry_time datetime DEFAULT NULL, finished_at datetime DEFAULT NULL, created_at datetime DEFAULT CURRENT_TIMESTAMP, \
    updated_at datetime DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP";
const KEYS: &str = "PRIMARY KEY (id), UNIQUE KEY uk_biz (biz_type, biz_id)";
const INDEX: &str = "KEY idx_status_next (status, next_retry_time)";

/// A broken table, or one that looks odd and is fine, and the configuration that goes with it.
struct Case {
    name: &'static str,
    ddl: String,
    settings: Value,
    only_on: Option<&'static str>,
}

fn case(name: &'static str, ddl: impl Into<String>) -> Case {
    Case { name, ddl: ddl.into(), settings: json!({}), only_on: None }
}

fn table(columns: &str, keys: &str) -> String {
    format!("CREATE TABLE async_bill ({columns}, {keys})")
}

/// The default table with some of its text changed.
fn changed(changes: &[(&str, &str)]) -> String {
    let mut ddl = table(COLUMNS, &format!("{KEYS}, {INDEX}"));
    for (from, to) in changes {
        assert!(ddl.contains(from), "{from}");
        ddl = ddl.replace(from, to);
    }
    ddl
}

impl Case {
    fn with(mut self, settings: Value) -> Self {
        self.settings = settings;
        self
    }

    fn only_on(mut self, server: &'static str) -> Self {
        self.only_on = Some(server);
        self
    }
}

fn cases() -> Vec<Case> {
    let words = json!({ "pending": "new", "done": "done", "failed": "failed", "compensated": "closed" });
    let mut cases = fine_cases();
    cases.extend([
        case("the table is missing, and another has nearly its name", "CREATE TABLE async_bills (id int)"),
        case(
            "columns are missing, some with a near miss",
            changed(&[("biz_id varchar(64)", "biz_no varchar(64)"), ("biz_type, biz_id", "biz_type, biz_no"), ("payload json", "body json"), ("finished_at datetime", "ended datetime")]),
        ),
        case(
            "every type is wrong",
            table(
                "id decimal(20,0) NOT NULL, biz_type int NOT NULL, biz_id date NOT NULL, status decimal(3,0) NOT NULL, payload int, \
                 retry_count varchar(9), next_retry_time int, finished_at date, created_at varchar(30), seq bigint AUTO_INCREMENT UNIQUE",
                "PRIMARY KEY (id)",
            ),
        ),
        case("finished_at cannot be NULL", changed(&[("finished_at datetime DEFAULT NULL", "finished_at datetime NOT NULL DEFAULT '2000-01-01'")])),
        case(
            "next_retry_time is touched by every update",
            changed(&[("next_retry_time datetime DEFAULT NULL", "next_retry_time datetime NULL DEFAULT NULL ON UPDATE CURRENT_TIMESTAMP")]),
        ),
        case("finished_at is generated", changed(&[("finished_at datetime DEFAULT NULL", "finished_at datetime AS (created_at) STORED")])),
        case("the index is missing", table(COLUMNS, KEYS)),
        case("the index has a column too many", changed(&[("(status, next_retry_time)", "(status, next_retry_time, biz_type)")])),
        case("the index is descending", changed(&[("(status, next_retry_time)", "(status, next_retry_time DESC)")])),
        case("the index is invisible", format!("{}; ALTER TABLE async_bill ALTER INDEX idx_status_next INVISIBLE", changed(&[]))).only_on("mysql"),
        case("the index is ignored", format!("{}; ALTER TABLE async_bill ALTER INDEX idx_status_next IGNORED", changed(&[]))).only_on("mariadb"),
        case("the index holds a prefix of status", changed(&[("status tinyint NOT NULL DEFAULT 0", "status varchar(20) NOT NULL"), ("(status, next", "(status(3), next")]))
            .with(json!({ "statuses": words })),
        case("id is unique only with another column", table(&format!("{COLUMNS}, tenant int NOT NULL"), &format!("PRIMARY KEY (tenant, id), KEY (id), {INDEX}"))),
        case("there is no primary key", table(&COLUMNS.replace(" AUTO_INCREMENT", ""), INDEX)),
        case("the engine has no transactions", format!("{} ENGINE=MyISAM", changed(&[]))),
        case("an ENUM lacks a status", changed(&[("status tinyint NOT NULL DEFAULT 0", "status enum('new','done','fail') NOT NULL DEFAULT 'new'")]))
            .with(json!({ "statuses": words })),
        case("a status is out of range", changed(&[])).with(json!({ "statuses": { "failed": 300 } })),
        case("a status is too long", changed(&[("status tinyint NOT NULL DEFAULT 0", "status varchar(4) NOT NULL")])).with(json!({ "statuses": words })),
        case("statuses are numbers and the column an ENUM", changed(&[("status tinyint NOT NULL DEFAULT 0", "status enum('0','1') NOT NULL")])),
        case("statuses are strings and the column a number", changed(&[])).with(json!({ "statuses": words })),
        case("the table is a view", format!("CREATE TABLE bills ({COLUMNS}, {KEYS}, {INDEX}); CREATE VIEW async_bill AS SELECT * FROM bills")),
        case("the table is partitioned", format!("{} PARTITION BY HASH (id) PARTITIONS 4", changed(&[("UNIQUE KEY uk_biz (biz_type, biz_id), ", "")]))),
        case("there is a trigger", format!("{}; CREATE TRIGGER tr BEFORE UPDATE ON async_bill FOR EACH ROW SET NEW.updated_at = NOW()", changed(&[]))),
        case("store.where does not parse", changed(&[])).with(json!({ "where": "deleted_at IS NUL" })),
        case("store.where names a column that is not there", changed(&[])).with(json!({ "where": "deleted_at IS NULL" })),
        case("a row has a status that the map does not know", format!("{}; INSERT INTO async_bill (biz_type, biz_id, status) VALUES ('a', 1, 0), ('a', 2, 7), ('a', 3, 9)", changed(&[]))),
        case("created_at is written in another time zone", format!("{}; INSERT INTO async_bill (biz_type, biz_id, created_at) VALUES ('a', 1, NOW() - INTERVAL 8 HOUR)", changed(&[]))),
    ]);
    cases
}

/// Tables in which nothing is to be found.
fn fine_cases() -> Vec<Case> {
    let words =
        json!({ "pending": ["new", "again"], "done": "done", "failed": "failed", "compensated": "it's closed" });
    let odd = "CREATE TABLE `or``der-\"s'` (`select` bigint NOT NULL AUTO_INCREMENT, `my type` varchar(64) NOT NULL, `key` bigint NOT NULL, \
        `group` enum('new','again','done','failed','it''s closed') NOT NULL DEFAULT 'new', body longblob, tries tinyint unsigned, due timestamp(3) NULL, \
        `end` datetime(6), made timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP, hdr text, why varchar(50), pub datetime, mid varchar(99), \
        ver int unsigned, reg char(2), deleted_at datetime, PRIMARY KEY (`select`), KEY `in``dex` (`group`, due, `select`))";
    let columns = json!({ "id": "select", "type": "my type", "key": "key", "status": "group", "payload": "body", "retry_count": "tries",
        "next_retry_time": "due", "finished_at": "end", "created_at": "made", "headers": "hdr", "reason": "why", "published_at": "pub",
        "message_id": "mid", "version": "ver", "extra": { "region": "reg" } });
    vec![
        case("the default table is fine", changed(&[])),
        case("odd names and every optional column are fine", odd)
            .with(json!({ "table": "`or``der-\"s'`", "columns": columns, "statuses": words, "where": "`deleted_at` IS NULL -- live" })),
        case("an id of characters is fine", changed(&[("id bigint unsigned NOT NULL AUTO_INCREMENT", "id char(36) NOT NULL")])),
        case("a binary id is fine", changed(&[("id bigint unsigned NOT NULL AUTO_INCREMENT", "id binary(16) NOT NULL")])),
        case("a UUID is fine as id", changed(&[("id bigint unsigned NOT NULL AUTO_INCREMENT", "id uuid NOT NULL")])).only_on("mariadb"),
    ]
}

fn settings(changes: &Value) -> Settings {
    serde_json::from_value(changes.clone()).expect("the test's settings are right")
}

fn database(options: MySqlConnectOptions) -> Database {
    Database::MySql(MySqlPoolOptions::new().connect_lazy_with(options))
}

async fn findings(database: &Database, settings: &Settings) -> Vec<Finding> {
    inspect(database, settings, None).await.expect("the inspection gets through").findings
}

/// The findings that are not good, as text.
fn troubles(findings: &[Finding]) -> Vec<(String, &str)> {
    let trouble = |finding: &Finding| match &finding.state {
        FindingState::Good { .. } => None,
        FindingState::Warning { problem, remedy } => Some(("?", problem.clone(), remedy.clone())),
        FindingState::Bad { problem, remedy } => Some(("✗", problem.clone(), remedy.clone())),
    };
    findings
        .iter()
        .filter_map(|finding| {
            let (mark, problem, _) = trouble(finding)?;
            let remedy = match &finding.state {
                FindingState::Good { .. } => "",
                FindingState::Warning { remedy, .. } | FindingState::Bad { remedy, .. } => remedy,
            };
            Some((format!("{mark} {}: {problem}", finding.point), remedy))
        })
        .collect()
}

fn assert_fine(findings: &[Finding], of: &str) {
    let troubles = troubles(findings);
    assert!(troubles.is_empty(), "{of}: {troubles:#?}");
}

/// The statement in a remedy, where it is one.
fn statement(remedy: &str) -> Option<&str> {
    let is_sql = ["ALTER ", "CREATE ", "GRANT ", "-- "].iter().any(|word| remedy.starts_with(word));
    is_sql.then(|| remedy.split(" or, where it exists: ").next().unwrap_or(remedy))
}

async fn initialize(database: &Database, settings: &Settings) -> Plan {
    let plan = plan(database, settings, true).await.expect("init finds a way");
    apply(database, &plan).await.expect("init gets through");
    plan
}

#[tokio::test]
async fn every_mistake_in_a_table_is_found_and_its_remedy_mends_it() {
    for server in Server::all() {
        let mut report = String::new();
        for case in cases().into_iter().filter(|case| case.only_on.is_none_or(|name| name == server.name)) {
            let home = server.database().await;
            home.run(&case.ddl).await;
            let (database, settings) = (database(home.options()), settings(&case.settings));
            initialize(&database, &settings).await;
            let found = findings(&database, &settings).await;
            let troubles = troubles(&found);
            report.push_str(&format!("\n## {}\n", case.name));
            let mut by_hand = Vec::new();
            for (trouble, remedy) in &troubles {
                report.push_str(&format!("{trouble}\n    {remedy}\n"));
                match statement(remedy) {
                    Some(sql) => home.run(sql).await,
                    None => by_hand.push(trouble.clone()),
                }
            }
            let left = findings(&database, &settings).await;
            let left: Vec<String> = self::troubles(&left).into_iter().map(|(trouble, _)| trouble).collect();
            assert_eq!(left, by_hand, "{} on {}: what is left after the remedies", case.name, server.name);
            report = report.replace(&home.name, "shop");
            home.remove().await;
        }
        let account = server.options().get_username().to_owned();
        let report = report
            .replace(&format!("'{account}'@'localhost'"), "ACCOUNT")
            .replace(&format!("'{account}'@'%'"), "ACCOUNT");
        insta::assert_snapshot!(format!("findings_{}", server.name), report);
    }
}

#[tokio::test]
async fn init_makes_its_tables_once_and_then_has_nothing_to_do() {
    for server in Server::all() {
        let home = server.database().await;
        home.run(&changed(&[])).await;
        let (database, settings) = (database(home.options()), settings(&json!({})));
        let before = findings(&database, &settings).await;
        assert!(before.iter().filter(|finding| finding.is_bad()).count() >= 3, "{before:#?}");
        let first = initialize(&database, &settings).await;
        assert_eq!((first.statements.len(), first.message_id_form), (5, MessageIdForm::TypeAndKey));
        assert_fine(&findings(&database, &settings).await, server.name);
        let second = plan(&database, &settings, false).await.expect("init finds a way");
        assert_eq!((second.statements.len(), second.message_id_form), (0, MessageIdForm::TypeAndKey));
        home.remove().await;
    }
}

#[tokio::test]
async fn init_refuses_a_table_of_its_name_with_another_shape_and_does_nothing() {
    for server in Server::all() {
        let home = server.database().await;
        home.run(&changed(&[])).await;
        home.run("CREATE TABLE outbill_meta (name varchar(64) PRIMARY KEY, value text NOT NULL)").await;
        let (database, settings) = (database(home.options()), settings(&json!({})));
        let error = plan(&database, &settings, false).await.expect_err("the shape differs");
        let InitError::Refused(reason) = error else { panic!("{error}") };
        assert!(reason.contains("outbill_meta is there and is not Outbill's: its column value is text"), "{reason}");
        let points: Vec<_> =
            findings(&database, &settings).await.into_iter().filter(Finding::is_bad).map(|it| it.point).collect();
        assert_eq!(points, ["table outbill_attempt", "table outbill_hold", "table outbill_meta"]);
        home.remove().await;
    }
}

#[tokio::test]
async fn init_wants_the_application_table_first_unless_the_example_makes_it() {
    for server in Server::all() {
        let home = server.database().await;
        let (database, settings) = (database(home.options()), settings(&json!({})));
        let error = plan(&database, &settings, false).await.expect_err("there is no table");
        assert!(error.to_string().contains("table async_bill is missing or not visible"), "{error}");
        let plan = plan(&database, &settings, true).await.expect("the example makes it");
        assert_eq!(plan.message_id_form, MessageIdForm::TypeAndKey);
        home.remove().await;
    }
}

#[tokio::test]
async fn own_tables_can_live_in_a_schema_of_their_own() {
    for server in Server::all() {
        let home = server.database().await;
        let own = unique("outbill_own");
        home.run(&changed(&[])).await;
        let (database, settings) =
            (database(home.options()), settings(&json!({ "own_schema": own, "own_prefix": "ob-" })));
        let first = initialize(&database, &settings).await;
        assert_eq!(first.statements[0], format!("CREATE DATABASE `{own}` DEFAULT CHARACTER SET utf8mb4"));
        assert_fine(&findings(&database, &settings).await, server.name);
        assert!(plan(&database, &settings, false).await.expect("init finds a way").statements.is_empty());
        home.run(&format!("SELECT 1 FROM `{own}`.`ob-attempt`; DROP DATABASE `{own}`")).await;
        home.remove().await;
    }
}

#[tokio::test]
async fn the_form_of_message_ids_is_fixed_by_the_first_init() {
    for server in Server::all() {
        let home = server.database().await;
        home.run(&table(COLUMNS, &format!("PRIMARY KEY (id), {INDEX}"))).await;
        let (database, settings) = (database(home.options()), settings(&json!({})));
        let first = initialize(&database, &settings).await;
        let form = MessageIdForm::TableAndId("async_bill".into());
        assert_eq!(
            (&first.message_id_form, first.message_id_reason.as_str()),
            (&form, "no unique index on exactly biz_type and biz_id")
        );
        home.run("ALTER TABLE async_bill ADD UNIQUE KEY uk_biz (biz_type, biz_id)").await;
        let later = inspect(&database, &settings, None).await.expect("the inspection gets through");
        assert_eq!(later.message_id_form.as_ref(), Some(&form));
        assert_fine(&later.findings, server.name);
        assert!(plan(&database, &settings, false).await.expect("init finds a way").statements.is_empty());

        home.run("UPDATE outbill_meta SET value = 'type_and_key' WHERE name = 'message_id_form'; DROP INDEX uk_biz ON async_bill").await;
        let found = findings(&database, &settings).await;
        let troubles = troubles(&found);
        let [(trouble, remedy)] = troubles.as_slice() else { panic!("{troubles:#?}") };
        assert!(trouble.starts_with("? message ids: they are made of type and key"), "{trouble}");
        home.run(remedy).await;
        assert_fine(&findings(&database, &settings).await, server.name);
        home.remove().await;
    }
}

#[tokio::test]
async fn a_schema_version_of_another_release_stops_run_and_init() {
    for server in Server::all() {
        let home = server.database().await;
        home.run(&changed(&[])).await;
        let (database, settings) = (database(home.options()), settings(&json!({})));
        initialize(&database, &settings).await;
        home.run("UPDATE outbill_meta SET value = '2' WHERE name = 'schema_version'").await;
        let found = findings(&database, &settings).await;
        let troubles = troubles(&found);
        assert_eq!(troubles.len(), 1, "{troubles:#?}");
        assert!(troubles[0].0.contains("its schema version is 2; this release knows 1"), "{troubles:#?}");
        assert!(plan(&database, &settings, false).await.is_err());
        home.remove().await;
    }
}

#[tokio::test]
async fn the_example_is_the_table_of_the_documentation() {
    for server in Server::all() {
        let (written, printed) = (server.database().await, server.database().await);
        written.run(&format!("{} ENGINE=InnoDB", changed(&[]))).await;
        let statements =
            example(&database(printed.options()), &settings(&json!({}))).await.expect("the example is printed");
        printed.run(&statements[0]).await;
        assert_eq!(shown(&written).await, shown(&printed).await, "{}", server.name);
        written.remove().await;
        printed.remove().await;
    }
}

async fn shown(home: &TestDatabase) -> String {
    let (_, ddl): (String, String) = sqlx::query_as("SHOW CREATE TABLE async_bill")
        .fetch_one(&mut home.connect().await)
        .await
        .expect("the table is there");
    ddl
}

/// An account that has the printed GRANTs and nothing else.
async fn least_account(home: &TestDatabase, settings: &Settings) -> (String, Database) {
    let account = format!("'{}'@'%'", unique("ob").chars().rev().take(30).collect::<String>());
    let user = account.split('\'').nth(1).expect("the account has a name").to_owned();
    home.run(&format!("CREATE USER {account} IDENTIFIED BY 'p@ss:w/rd'")).await;
    let printed = example(&database(home.options()), settings).await.expect("the GRANTs are printed");
    for grant in printed.iter().filter(|statement| statement.contains("GRANT ")) {
        home.run(&grant.replace("'outbill'@'%'", &account)).await;
    }
    (account, database(home.options().username(&user).password("p@ss:w/rd")))
}

#[tokio::test]
async fn an_account_with_the_printed_grants_passes_the_inspection_and_each_of_them_is_needed() {
    let extra = ", deleted_at datetime, hdr json, why varchar(99), pub datetime";
    for server in Server::all() {
        let home = server.database().await;
        let own = unique("outbill_own");
        home.run(&table(&format!("{COLUMNS}{extra}"), &format!("{KEYS}, {INDEX}"))).await;
        let settings = settings(&json!({ "own_schema": own, "where": "deleted_at IS NULL",
            "columns": { "headers": "hdr", "reason": "why", "published_at": "pub" } }));
        initialize(&database(home.options()), &settings).await;
        let (account, least) = least_account(&home, &settings).await;
        assert_fine(&findings(&least, &settings).await, server.name);

        let table = format!("`{}`.`async_bill`", home.name);
        let mut rights: Vec<(String, String)> = Vec::new();
        for column in [
            "id",
            "biz_type",
            "biz_id",
            "status",
            "payload",
            "retry_count",
            "next_retry_time",
            "created_at",
            "hdr",
            "deleted_at",
        ] {
            rights.push((format!("SELECT (`{column}`)"), table.clone()));
        }
        for column in ["status", "retry_count", "next_retry_time", "finished_at", "why", "pub"] {
            rights.push((format!("UPDATE (`{column}`)"), table.clone()));
        }
        for (right, own_table) in
            [("INSERT", "attempt"), ("SELECT", "hold"), ("INSERT", "hold"), ("DELETE", "hold"), ("SELECT", "meta")]
        {
            rights.push((right.to_owned(), format!("`{own}`.`outbill_{own_table}`")));
        }
        for (right, table) in rights {
            home.run(&format!("REVOKE {right} ON {table} FROM {account}")).await;
            let found = findings(&least, &settings).await;
            let troubles = troubles(&found);
            assert!(found.iter().any(Finding::is_bad), "{right} on {table} was missing and nothing was found");
            for (trouble, remedy) in &troubles {
                let Some((_, grant)) = remedy.split_once("GRANT ") else {
                    assert!(trouble.contains("not visible to"), "{trouble}: {remedy}");
                    home.run(&format!("GRANT {right} ON {table} TO {account}")).await;
                    continue;
                };
                let grant =
                    grant.replace(" TO the account; or correct the name in store.where", &format!(" TO {account}"));
                home.run(&format!("GRANT {grant}")).await;
            }
            assert_fine(&findings(&least, &settings).await, &format!("{right} on {table} given again"));
        }
        home.run(&format!("DROP USER {account}; DROP DATABASE `{own}`")).await;
        home.remove().await;
    }
}

#[tokio::test]
async fn an_account_without_any_right_is_told_which_it_needs() {
    for server in Server::all() {
        let home = server.database().await;
        home.run(&changed(&[])).await;
        let settings = settings(&json!({ "table": format!("{}.async_bill", home.name) }));
        initialize(&database(home.options()), &settings).await;
        let user = unique("u").chars().rev().take(30).collect::<String>();
        home.run(&format!("CREATE USER '{user}'@'%' IDENTIFIED BY 'x'")).await;
        let nobody = database(server.options().username(&user).password("x"));
        let found = findings(&nobody, &settings).await;
        let troubles = troubles(&found);
        let expected =
            format!("✗ table {}.async_bill: not visible to '{user}'@'%': missing, or no privilege on it", home.name);
        assert_eq!(troubles[0].0, expected);
        let grant = troubles[0].1.split_once(" or, where it exists: ").expect("both remedies are given").1;
        home.run(grant).await;
        let after = findings(&nobody, &settings).await;
        assert!(self::troubles(&after).iter().all(|(trouble, _)| trouble.contains("outbill_")), "{after:#?}");
        home.run(&format!("DROP USER '{user}'@'%'")).await;
        home.remove().await;
    }
}

#[tokio::test]
async fn the_sessions_settings_are_seen_and_no_sql_mode_confuses_the_inspection() {
    for server in Server::all() {
        let home = server.database().await;
        home.run(&changed(&[])).await;
        let settings = settings(&json!({}));
        initialize(&database(home.options()), &settings).await;
        let read_only = "SET SESSION TRANSACTION READ ONLY";
        for (set, expected) in [
            ("SET SESSION sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,IGNORE_SPACE'", None),
            ("SET SESSION sql_mode = ''", None),
            ("SET SESSION sql_mode = 'ANSI'", None),
            ("SET SESSION binlog_format = 'STATEMENT'", Some("server binlog_format")),
            (read_only, Some("server read-only")),
        ] {
            let options = MySqlPoolOptions::new().after_connect(move |link, _| {
                Box::pin(async move { sqlx::raw_sql(set).execute(link).await.map(drop) })
            });
            let odd = Database::MySql(options.connect_lazy_with(home.options()));
            let bad: Vec<String> =
                findings(&odd, &settings).await.into_iter().filter(Finding::is_bad).map(|it| it.point).collect();
            assert_eq!(bad.first().map(String::as_str), expected, "{set} on {}: {bad:?}", server.name);
        }
        home.remove().await;
    }
}
