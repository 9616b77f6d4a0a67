//! The inspection of the table, `init` and the GRANTs, on real servers.

mod support;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use outbill::{
    bill::MessageIdForm,
    finding::{Finding, FindingState},
    secret::Secret,
    store::{
        Attempt, FetchRequest, Filter, Hold, OverviewLimits, Queue, Row, Selection, Settlement, Verdict, open,
        schema::{InitError, Plan, apply, example, inspect, plan},
        settings::Settings,
    },
};
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use support::databases::{Database, Kind, with_database};

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

const SERVERS: [Kind; 2] = [Kind::MariaDb, Kind::MySql];

async fn findings(settings: &Settings) -> Vec<Finding> {
    inspect(settings, None).await.expect("the inspection gets through").findings
}

/// The findings that are not good, as text, and their remedies.
fn troubles(findings: &[Finding]) -> Vec<(String, String)> {
    let trouble = |finding: &Finding| match &finding.state {
        FindingState::Good { .. } => None,
        FindingState::Warning { problem, .. } => Some(format!("? {}: {problem}", finding.point)),
        FindingState::Bad { problem, .. } => Some(format!("✗ {}: {problem}", finding.point)),
    };
    let remedy = |finding: &Finding| match &finding.state {
        FindingState::Good { .. } => String::new(),
        FindingState::Warning { remedy, .. } | FindingState::Bad { remedy, .. } => remedy.clone(),
    };
    findings.iter().filter_map(|finding| Some((trouble(finding)?, remedy(finding)))).collect()
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

async fn initialize(settings: &Settings) -> Plan {
    let plan = plan(settings, true).await.expect("init finds a way");
    apply(settings, &plan).await.expect("init gets through");
    plan
}

/// Runs every case: what is found, what the remedies do, and what is left of it.
async fn report(kind: Kind, cases: Vec<Case>) -> String {
    let report = Mutex::new(String::new());
    for case in cases {
        with_database(kind, async |home| {
            home.execute(&case.ddl).await;
            let settings = home.settings(&case.settings);
            initialize(&settings).await;
            let found = findings(&settings).await;
            let mut lines = vec![format!("\n## {}\n", case.name)];
            let mut by_hand = Vec::new();
            for (trouble, remedy) in troubles(&found) {
                lines.push(format!("{trouble}\n    {remedy}\n"));
                match statement(&remedy) {
                    Some(sql) => home.execute(sql).await,
                    None => by_hand.push(trouble),
                }
            }
            let left = findings(&settings).await;
            let left: Vec<String> = troubles(&left).into_iter().map(|(trouble, _)| trouble).collect();
            assert_eq!(left, by_hand, "{} on {kind:?}: what is left after the remedies", case.name);
            let text = lines
                .concat()
                .replace(&home.name, "shop")
                .replace("'root'@'localhost'", "ACCOUNT")
                .replace("'root'@'%'", "ACCOUNT");
            report.lock().expect("nobody panicked").push_str(&text);
        })
        .await;
    }
    report.into_inner().expect("nobody panicked")
}

#[tokio::test]
async fn every_mistake_in_a_table_is_found_and_its_remedy_mends_it() {
    for (kind, name) in [(Kind::MariaDb, "mariadb"), (Kind::MySql, "mysql")] {
        let cases = cases().into_iter().filter(|case| case.only_on.is_none_or(|only| only == name)).collect();
        let report = report(kind, cases).await;
        if !report.is_empty() {
            insta::assert_snapshot!(format!("findings_{name}"), report);
        }
    }
}

#[tokio::test]
async fn every_mistake_in_a_sqlite_table_is_found() {
    let columns = "id integer PRIMARY KEY AUTOINCREMENT, biz_type text NOT NULL, biz_id text NOT NULL, status integer NOT NULL DEFAULT 0, \
        payload text, retry_count integer NOT NULL DEFAULT 0, next_retry_time datetime, finished_at datetime, \
        created_at datetime DEFAULT CURRENT_TIMESTAMP";
    let index = "CREATE INDEX idx ON async_bill (status, next_retry_time)";
    let table = |columns: &str| format!("CREATE TABLE async_bill ({columns}, UNIQUE (biz_type, biz_id)); {index}");
    let cases = vec![
        case("a table of the documentation is fine", table(columns)),
        case("the table is missing", "CREATE TABLE async_bils (id int)"),
        case(
            "columns are missing",
            format!(
                "CREATE TABLE async_bill (id integer PRIMARY KEY, biz_type text, biz_no text, status int, next_retry_time text); {index}"
            ),
        ),
        case(
            "types are wrong",
            table(
                &columns
                    .replace("integer PRIMARY KEY AUTOINCREMENT", "text PRIMARY KEY NOT NULL")
                    .replace("next_retry_time datetime", "next_retry_time int"),
            ),
        ),
        case("the index is missing", table(columns).replace(index, "")),
        case("the index is partial", table(columns).replace(index, &format!("{index} WHERE status = 0"))),
        case("store.where does not parse", table(columns)).with(json!({ "where": "deleted_at IS NUL" })),
        case(
            "a status is a stranger, and created_at in another zone",
            format!(
                "{}; INSERT INTO async_bill (biz_type, biz_id, status, created_at) VALUES ('a', 1, 9, datetime('now', '+8 hours'))",
                table(columns)
            ),
        ),
    ];
    insta::assert_snapshot!("findings_sqlite", report(Kind::Sqlite, cases).await);
}

#[tokio::test]
async fn init_makes_its_tables_once_and_then_has_nothing_to_do() {
    for kind in SERVERS {
        with_database(kind, async |home| {
            home.execute(&changed(&[])).await;
            let settings = home.settings(&json!({}));
            let before = findings(&settings).await;
            assert_eq!(before.iter().filter(|finding| finding.is_bad()).count(), 3, "{before:#?}");
            let first = initialize(&settings).await;
            assert_eq!((first.statements.len(), first.message_id_form), (5, MessageIdForm::TypeAndKey));
            assert_fine(&findings(&settings).await, "after init");
            let second = plan(&settings, false).await.expect("init finds a way");
            assert_eq!((second.statements.len(), second.message_id_form), (0, MessageIdForm::TypeAndKey));
        })
        .await;
    }
}

#[tokio::test]
async fn init_refuses_a_table_of_its_name_with_another_shape_and_does_nothing() {
    for kind in [Kind::MariaDb, Kind::MySql, Kind::Sqlite] {
        with_database(kind, async |home| {
            let settings = home.settings(&json!({}));
            for statement in
                example(&settings).await.expect("the example is printed").iter().filter(|it| !it.contains("GRANT "))
            {
                home.execute(statement).await;
            }
            home.execute("CREATE TABLE outbill_meta (name varchar(64) PRIMARY KEY NOT NULL, value date NOT NULL)")
                .await;
            let error = plan(&settings, false).await.expect_err("the shape differs");
            let InitError::Refused(reason) = error else { panic!("{error}") };
            assert!(reason.contains("outbill_meta is there and is not Outbill's: its column "), "{reason}");
            let points: Vec<_> =
                findings(&settings).await.into_iter().filter(Finding::is_bad).map(|it| it.point).collect();
            assert_eq!(points, ["table outbill_attempt", "table outbill_hold", "table outbill_meta"]);
        })
        .await;
    }
}

#[tokio::test]
async fn init_wants_the_application_table_first_unless_the_example_makes_it() {
    for kind in [Kind::MariaDb, Kind::MySql, Kind::Sqlite] {
        with_database(kind, async |home| {
            let settings = home.settings(&json!({}));
            let error = plan(&settings, false).await.expect_err("there is no table");
            assert!(error.to_string().contains("table async_bill is missing or not visible"), "{error}");
            let plan = initialize(&settings).await;
            assert_eq!(plan.message_id_form, MessageIdForm::TypeAndKey);
            for statement in
                example(&settings).await.expect("the example is printed").iter().filter(|it| !it.contains("GRANT "))
            {
                home.execute(statement).await;
            }
            assert_fine(&findings(&settings).await, "the example and the own tables");
        })
        .await;
    }
}

#[tokio::test]
async fn own_tables_can_live_in_a_schema_of_their_own() {
    for kind in SERVERS {
        with_database(kind, async |home| {
            let own = format!("{}_own", home.name);
            home.execute(&changed(&[])).await;
            let settings = home.settings(&json!({ "own_schema": own, "own_prefix": "ob-" }));
            let first = initialize(&settings).await;
            assert_eq!(first.statements[0], format!("CREATE DATABASE `{own}` DEFAULT CHARACTER SET utf8mb4"));
            assert_fine(&findings(&settings).await, "with a schema of their own");
            assert!(plan(&settings, false).await.expect("init finds a way").statements.is_empty());
            home.execute(&format!("SELECT 1 FROM `{own}`.`ob-attempt`; DROP DATABASE `{own}`")).await;
        })
        .await;
    }
    with_database(Kind::Sqlite, async |home| {
        let error = plan(&home.settings(&json!({ "own_schema": "x" })), true).await.expect_err("SQLite has no schemas");
        assert!(matches!(error, InitError::Refused(_)), "{error}");
    })
    .await;
}

#[tokio::test]
async fn the_form_of_message_ids_is_fixed_by_the_first_init() {
    for kind in SERVERS {
        with_database(kind, async |home| {
            home.execute(&table(COLUMNS, &format!("PRIMARY KEY (id), {INDEX}"))).await;
            let settings = home.settings(&json!({}));
            let first = initialize(&settings).await;
            let form = MessageIdForm::TableAndId("async_bill".into());
            let reason = "no unique index on exactly biz_type and biz_id";
            assert_eq!((&first.message_id_form, first.message_id_reason.as_str()), (&form, reason));
            home.execute("ALTER TABLE async_bill ADD UNIQUE KEY uk_biz (biz_type, biz_id)").await;
            let later = inspect(&settings, None).await.expect("the inspection gets through");
            assert_eq!(later.message_id_form.as_ref(), Some(&form));
            assert_fine(&later.findings, "with an index that came later");
            assert!(plan(&settings, false).await.expect("init finds a way").statements.is_empty());

            home.execute("UPDATE outbill_meta SET value = 'type_and_key' WHERE name = 'message_id_form'").await;
            home.execute("DROP INDEX uk_biz ON async_bill").await;
            let found = findings(&settings).await;
            let troubles = troubles(&found);
            let [(trouble, remedy)] = troubles.as_slice() else { panic!("{troubles:#?}") };
            assert!(trouble.starts_with("? message ids: they are made of type and key"), "{trouble}");
            home.execute(remedy).await;
            assert_fine(&findings(&settings).await, "with the index again");
        })
        .await;
    }
}

#[tokio::test]
async fn a_schema_version_of_another_release_stops_run_and_init() {
    for kind in SERVERS {
        with_database(kind, async |home| {
            home.execute(&changed(&[])).await;
            let settings = home.settings(&json!({}));
            initialize(&settings).await;
            home.execute("UPDATE outbill_meta SET value = '2' WHERE name = 'schema_version'").await;
            let found = findings(&settings).await;
            let troubles = troubles(&found);
            assert_eq!(troubles.len(), 1, "{troubles:#?}");
            assert!(troubles[0].0.contains("its schema version is 2; this release knows 1"), "{troubles:#?}");
            assert!(plan(&settings, false).await.is_err());
        })
        .await;
    }
}

#[tokio::test]
async fn the_example_is_the_table_of_the_documentation() {
    for kind in SERVERS {
        with_database(kind, async |home| {
            let shown = async || {
                let link = &mut home.connect().await;
                let (_, ddl): (String, String) =
                    sqlx::query_as("SHOW CREATE TABLE async_bill").fetch_one(link).await.expect("it is there");
                ddl
            };
            let printed = example(&home.settings(&json!({}))).await.expect("the example is printed");
            home.execute(&printed[0]).await;
            let made = shown().await;
            home.execute("DROP TABLE async_bill").await;
            home.execute(&format!("{} ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4", changed(&[]))).await;
            assert_eq!(made, shown().await);
        })
        .await;
    }
}

const PASSWORD: &str = "p@ss:w/rd?#%25 é";

/// Settings with an account that has the printed GRANTs and nothing else, and that account as GRANT takes it.
async fn least(home: &Database, changes: &Value) -> (Settings, String) {
    let user = format!("ob{}", &home.name["outbill_test".len()..]);
    let account = format!("'{user}'@'%'");
    home.execute(&format!("CREATE USER {account} IDENTIFIED BY '{PASSWORD}'")).await;
    for grant in example(&home.settings(changes))
        .await
        .expect("the GRANTs are printed")
        .iter()
        .filter(|it| it.contains("GRANT "))
    {
        home.execute(&grant.replace("'outbill'@'%'", &account)).await;
    }
    (as_user(home, changes, &user), account)
}

fn as_user(home: &Database, changes: &Value, user: &str) -> Settings {
    let mut settings = home.settings(changes);
    settings.user = Some(user.to_owned());
    settings.password = Some(Secret::new(PASSWORD));
    settings
}

#[tokio::test]
async fn an_account_with_the_printed_grants_passes_the_inspection_and_each_of_them_is_needed() {
    let extra = ", deleted_at datetime, hdr json, why varchar(99), pub datetime";
    for kind in SERVERS {
        with_database(kind, async |home| {
            let own = format!("{}_own", home.name);
            home.execute(&table(&format!("{COLUMNS}{extra}"), &format!("{KEYS}, {INDEX}"))).await;
            let changes = json!({ "own_schema": own, "where": "deleted_at IS NULL",
                "columns": { "headers": "hdr", "reason": "why", "published_at": "pub" } });
            initialize(&home.settings(&changes)).await;
            let (settings, account) = least(&home, &changes).await;
            assert_fine(&findings(&settings).await, "with the printed GRANTs");
            for (right, table) in rights(&home.name, &own) {
                home.execute(&format!("REVOKE {right} ON {table} FROM {account}")).await;
                let found = findings(&settings).await;
                assert!(found.iter().any(Finding::is_bad), "{right} on {table} was missing and nothing was found");
                for (trouble, remedy) in troubles(&found) {
                    let Some((_, grant)) = remedy.split_once("GRANT ") else {
                        // Of an own table that is not to be seen nothing can be told.
                        assert!(trouble.contains("not visible to"), "{trouble}: {remedy}");
                        home.execute(&format!("GRANT {right} ON {table} TO {account}")).await;
                        continue;
                    };
                    let grant =
                        grant.replace(" TO the account; or correct the name in store.where", &format!(" TO {account}"));
                    home.execute(&format!("GRANT {grant}")).await;
                }
                assert_fine(&findings(&settings).await, &format!("{right} on {table} given again"));
            }
            home.execute(&format!("DROP USER {account}; DROP DATABASE `{own}`")).await;
        })
        .await;
    }
}

/// Every single right of the printed GRANTs, with its table.
fn rights(application: &str, own: &str) -> Vec<(String, String)> {
    let table = format!("`{application}`.`async_bill`");
    let read = [
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
    ];
    let written = ["status", "retry_count", "next_retry_time", "finished_at", "why", "pub"];
    let of_own =
        [("INSERT", "attempt"), ("SELECT", "hold"), ("INSERT", "hold"), ("DELETE", "hold"), ("SELECT", "meta")];
    let read = read.map(|column| (format!("SELECT (`{column}`)"), table.clone()));
    let written = written.map(|column| (format!("UPDATE (`{column}`)"), table.clone()));
    let of_own = of_own.map(|(right, name)| (right.to_owned(), format!("`{own}`.`outbill_{name}`")));
    read.into_iter().chain(written).chain(of_own).collect()
}

#[tokio::test]
async fn fetch_settle_hold_and_release_work_with_only_the_printed_grants() {
    for kind in SERVERS {
        with_database(kind, async |home| {
            let changes = json!({ "columns": { "reason": "why", "published_at": "pub", "version": "ver", "extra": { "region": "reg" } },
                "where": "deleted_at IS NULL" });
            let extra = ", deleted_at datetime, why varchar(99), pub datetime, ver int DEFAULT 1, reg char(2)";
            home.execute(&table(&format!("{COLUMNS}{extra}"), &format!("{KEYS}, {INDEX}"))).await;
            home.execute("INSERT INTO async_bill (biz_type, biz_id, payload) VALUES ('a', 1, '{}'), ('a', 2, '{}'), ('a', 3, '{}')").await;
            initialize(&home.settings(&changes)).await;
            let (settings, account) = least(&home, &changes).await;
            let opened = open(&settings, "test").await.expect("the store opens");
            let wanted: Filter = Arc::new(|_| true);
            for (queue, wanted) in [(Queue::Due, None), (Queue::Due, Some(Arc::clone(&wanted))), (Queue::Fresh, Some(wanted))] {
                let request = FetchRequest { queue, after: None, rows: 9, bytes: 9_999, max_payload: 9_999, wanted };
                opened.store.fetch(&request).await.expect("fetch is allowed");
            }
            let request = FetchRequest { queue: Queue::Fresh, after: None, rows: 9, bytes: 9_999, max_payload: 9_999, wanted: None };
            let page = opened.store.fetch(&request).await.expect("fetch is allowed");
            let verdicts = [Verdict::Done, Verdict::Retry { delay: Duration::from_secs(1) }, Verdict::Failed { reason: "no".to_owned() }];
            let settlements: Vec<Settlement> = page.rows.into_iter().zip(verdicts).map(|(row, verdict)| settlement(row, verdict)).collect();
            assert_eq!(opened.store.settle(&settlements).await.expect("settle is allowed"), 3);
            let hold = Hold { class: "x".to_owned(), reason: "y".to_owned() };
            opened.store.hold("orders", &hold).await.expect("hold is allowed");
            assert_eq!(opened.store.holds().await.expect("holds is allowed").len(), 1);
            assert!(opened.ledger.release("orders").await.expect("release is allowed"));
            opened.ledger.overview(&OverviewLimits::default()).await.expect("overview is allowed");
            opened.ledger.find("1").await.expect("find is allowed").expect("the bill is there");
            let ids = opened.ledger.retry(&Selection::Type("a".to_owned()), 10, false).await.expect("retry is allowed");
            assert_eq!(ids.len(), 1);
            home.execute(&format!("DROP USER {account}")).await;
        })
        .await;
    }
}

fn settlement(row: Row, verdict: Verdict) -> Settlement {
    let Row::Bill(bill) = row else { unreachable!("{row:?}") };
    let attempt = Attempt {
        bill_type: bill.bill_type,
        message_id: "a:1".to_owned(),
        number: 1,
        outcome: "delivered",
        class: None,
        error: None,
        sink: "rabbit".into(),
        route: "orders".into(),
        duration: Duration::from_millis(3),
    };
    Settlement { id: bill.id, seen: bill.seen, verdict, attempt: Some(attempt) }
}

#[tokio::test]
async fn an_account_without_any_right_is_told_which_it_needs() {
    for kind in SERVERS {
        with_database(kind, async |home| {
            home.execute(&changed(&[])).await;
            let table = format!("{}.async_bill", home.name);
            let changes = json!({ "table": table, "url": home.url.replace(&home.name, "information_schema") });
            initialize(&home.settings(&changes)).await;
            let user = format!("no{}", &home.name["outbill_test".len()..]);
            home.execute(&format!("CREATE USER '{user}'@'%' IDENTIFIED BY '{PASSWORD}'")).await;
            let settings = as_user(&home, &changes, &user);
            let found = findings(&settings).await;
            let troubles = troubles(&found);
            assert_eq!(
                troubles[0].0,
                format!("✗ table {table}: not visible to '{user}'@'%': missing, or no privilege on it")
            );
            let grant = troubles[0].1.split_once(" or, where it exists: ").expect("both remedies are given").1;
            home.execute(grant).await;
            let after = findings(&settings).await;
            assert!(self::troubles(&after).iter().all(|(trouble, _)| trouble.contains("outbill_")), "{after:#?}");
            home.execute(&format!("DROP USER '{user}'@'%'")).await;
        })
        .await;
    }
}

#[tokio::test]
async fn two_servers_behind_one_address_are_found() {
    with_database(Kind::MariaDb, async |one| {
        with_database(Kind::MySql, async |other| {
            let user = format!("split{}", &one.name["outbill_test".len()..]);
            // The databases have one name, as those of a primary and its replica.
            other.execute(&format!("CREATE DATABASE `{}`", one.name)).await;
            for home in [&one, &other] {
                home.execute(&format!("CREATE USER '{user}'@'%' IDENTIFIED BY '{PASSWORD}'")).await;
                home.execute(&format!("GRANT ALL ON `{}`.* TO '{user}'@'%'", one.name)).await;
            }
            let mut settings = as_user(&one, &json!({}), &user);
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
            settings.port = Some(listener.local_addr().expect("the port is known").port());
            settings.host = Some("127.0.0.1".to_owned());
            settings.socket = None;
            let ports = [&one, &other].map(|home| home.address().1);
            let found = tokio::select! {
                found = findings(&settings) => found,
                () = alternate(listener, ports) => unreachable!("it serves for ever"),
            };
            let bad: Vec<_> = found.iter().filter(|it| it.is_bad()).map(|it| it.point.as_str()).collect();
            assert!(bad.contains(&"server identity"), "{found:#?}");
            for home in [&one, &other] {
                home.execute(&format!("DROP USER '{user}'@'%'")).await;
            }
            other.execute(&format!("DROP DATABASE `{}`", one.name)).await;
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn a_server_behind_a_socket_is_inspected_and_initialised_with_and_without_tls() {
    for kind in SERVERS {
        with_database(kind, async |home| {
            home.execute(&changed(&[])).await;
            let socket = home.value("@@socket", "DUAL").await;
            if !std::path::Path::new(&socket).exists() {
                return;
            }
            let user = format!("sock{}", &home.name["outbill_test".len()..]);
            home.execute(&format!("CREATE USER '{user}'@'%' IDENTIFIED BY '{PASSWORD}'")).await;
            home.execute(&format!("GRANT ALL ON `{}`.* TO '{user}'@'%'", home.name)).await;
            // The first connection is encrypted: MySQL takes a password that it has not cached in no other way.
            for mode in ["preferred", "disabled"] {
                let settings = json!({ "socket": socket, "user": user, "password": PASSWORD, "database": home.name,
                    "tls": { "mode": mode } });
                let settings: Settings = serde_json::from_value(settings).expect("the settings are valid");
                initialize(&settings).await;
                assert_fine(&findings(&settings).await, &format!("on {kind:?} with TLS {mode}"));
                example(&settings).await.expect("the GRANTs are printed");
            }
            home.execute(&format!("DROP USER '{user}'@'%'")).await;
        })
        .await;
    }
}

/// Passes each connection on to the next of the ports.
async fn alternate(listener: TcpListener, ports: [u16; 2]) {
    let mut pipes = JoinSet::new();
    for port in ports.into_iter().cycle() {
        let (mut near, _) = listener.accept().await.expect("a connection comes");
        pipes.spawn(async move {
            let mut far = TcpStream::connect(("127.0.0.1", port)).await.expect("the server is there");
            tokio::io::copy_bidirectional(&mut near, &mut far).await.ok();
        });
    }
}

/// `init_connect` is for accounts without privileges, and does nothing for those of other names.
#[tokio::test]
async fn no_sql_mode_confuses_the_inspection_and_a_read_only_session_is_seen() {
    for kind in SERVERS {
        with_database(kind, async |home| {
            home.execute(&changed(&[])).await;
            initialize(&home.settings(&json!({}))).await;
            let read_only = if kind == Kind::MySql { "transaction_read_only" } else { "tx_read_only" };
            for (variable, value, otherwise, expected) in [
                ("sql_mode", "'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,IGNORE_SPACE'", "@@sql_mode", None),
                ("sql_mode", "''", "@@sql_mode", None),
                (read_only, "1", "0", Some("server read-only")),
            ] {
                let (settings, account) = least(&home, &json!({})).await;
                let user = settings.user.clone().unwrap_or_default();
                let set = format!("SET SESSION {variable} = IF(USER() LIKE '{user}@%', {value}, {otherwise})");
                home.execute(&format!("SET GLOBAL init_connect = '{}'", set.replace('\'', "''"))).await;
                let bad: Vec<String> =
                    findings(&settings).await.into_iter().filter(Finding::is_bad).map(|it| it.point).collect();
                home.execute(&format!("SET GLOBAL init_connect = ''; DROP USER {account}")).await;
                assert_eq!(bad.first().map(String::as_str), expected, "{variable} {value} on {kind:?}: {bad:?}");
            }
        })
        .await;
    }
}
