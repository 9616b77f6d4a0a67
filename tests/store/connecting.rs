//! Connecting: secrets, encryption, and what is left of a session alone.

use std::sync::Arc;

use outbill::store::{Opened, StoreError, Verdict, open};
use serde_json::{Value, json};

use crate::{
    default_store, fresh, ids, insert, on, on_every_server, settlement, store,
    support::databases::{Database, Kind},
};

on_every_server! {
    any_password_works_unencoded_in_settings_of_its_own,
    a_url_that_does_not_parse_says_how_to_encode_and_shows_nothing,
    a_password_file_is_read_again_for_every_connection,
    a_refused_user_and_a_closed_port_are_told_apart,
    a_session_reads_what_is_committed_in_the_servers_zone,
    a_read_only_server_is_unavailable_and_comes_back,
}

mod encrypted {
    use super::*;

    on! { MySql as mysql: a_stranger_with_a_certificate_is_refused, a_sha2_login_wants_encryption; }
    use super::{a_sha2_login_wants_encryption, a_stranger_with_a_certificate_is_refused};
}

const PASSWORD: &str = "p@ss:w/rd?#%25 é'\\";

/// A user that may do what `run` has to, named after the database.
async fn create_user(database: &Database, password: &str) {
    let password = password.replace('\\', "\\\\").replace('\'', "''");
    let user = &database.name;
    database.execute(&format!("CREATE USER '{user}'@'%' IDENTIFIED BY '{password}'")).await;
    database.execute(&format!("GRANT SELECT, INSERT, UPDATE, DELETE ON `{user}`.* TO '{user}'@'%'")).await;
}

async fn drop_user(database: &Database) {
    database.execute(&format!("DROP USER '{}'@'%'", database.name)).await;
}

/// Settings for that user, each part a key of its own.
fn parts(database: &Database, changes: &Value) -> Value {
    let (host, port) = database.address();
    let mut settings =
        json!({ "url": null, "host": host, "port": port, "user": database.name, "database": database.name });
    settings.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    settings
}

async fn error_of(database: &Database, settings: Value) -> String {
    match open(&database.settings(&settings), "test-1").await {
        Ok(opened) => panic!("it opened: {opened:?}"),
        // Each error of the chain by itself: the whole one may print a backtrace, whose addresses mean nothing here.
        Err(error) => error.chain().map(|error| format!("{error} {error:?}")).collect::<Vec<_>>().join("\n"),
    }
}

async fn any_password_works_unencoded_in_settings_of_its_own(database: Arc<Database>) {
    default_store(&database).await;
    create_user(&database, PASSWORD).await;
    let opened = store(&database, parts(&database, &json!({ "password": PASSWORD }))).await;
    assert!(!format!("{opened:?}").contains("p@ss"), "{opened:?}");
    let (host, port) = database.address();
    let encoded = "p%40ss%3Aw%2Frd%3F%23%2525%20%C3%A9%27%5C";
    let url = format!("mysql://{0}:{encoded}@{host}:{port}/{0}", database.name);
    store(&database, json!({ "url": url })).await;
    drop_user(&database).await;
}

async fn a_url_that_does_not_parse_says_how_to_encode_and_shows_nothing(database: Arc<Database>) {
    for password in ["p@ss:w/rd?#%25", "secret/12", "secret#12", "12#secret", "secret?12"] {
        let error = error_of(&database, json!({ "url": format!("mysql://app:{password}@127.0.0.1:1/shop") })).await;
        assert!(error.contains("percent-encoded") && error.contains("store.password"), "{password}: {error}");
        for part in ["rd?", "ss:w", "secret", "12"] {
            assert!(!error.contains(part), "{password}: {error}");
        }
    }
    let error = error_of(&database, json!({ "url": "postgres://app:secret@127.0.0.1/shop" })).await;
    assert!(error.contains("mysql://") && !error.contains("secret"), "{error}");
}

async fn a_password_file_is_read_again_for_every_connection(database: Arc<Database>) {
    default_store(&database).await;
    insert(&database, "order.paid", 1..=1).await;
    create_user(&database, "old secret").await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, "old secret\n").unwrap();
    let opened = store(&database, parts(&database, &json!({ "password_file": file.path() }))).await;
    assert_eq!(ids(&opened.store.fetch(&fresh()).await.unwrap()), [1]);
    database.execute(&format!("ALTER USER '{}'@'%' IDENTIFIED BY 'new secret'", database.name)).await;
    kill_sessions(&database).await;
    let refused = fetch_until(&opened, Result::is_err).await.unwrap_err();
    assert!(!refused.to_string().contains("secret"), "{refused}");
    std::fs::write(&file, "new secret").unwrap();
    fetch_until(&opened, Result::is_ok).await.unwrap();
    std::fs::remove_file(&file).unwrap();
    kill_sessions(&database).await;
    let refused =
        fetch_until(&opened, |result| matches!(result, Err(error) if error.to_string().contains("cannot read"))).await;
    assert!(refused.unwrap_err().to_string().contains(&file.path().display().to_string()));
    drop_user(&database).await;
}

async fn kill_sessions(database: &Database) {
    let sessions =
        format!("SELECT CAST(id AS CHAR) FROM information_schema.processlist WHERE user = '{}'", database.name);
    for id in database.texts(&sessions).await {
        // It may have ended by itself.
        drop(database.try_execute(&format!("KILL {}", id.unwrap())).await);
    }
}

async fn fetch_until(opened: &Opened, is_it: impl Fn(&Result<(), StoreError>) -> bool) -> Result<(), StoreError> {
    for _ in 0..20 {
        let result = opened.store.fetch(&fresh()).await.map(drop);
        if is_it(&result) {
            return result;
        }
    }
    panic!("it did not come to that");
}

async fn a_refused_user_and_a_closed_port_are_told_apart(database: Arc<Database>) {
    let nobody = parts(&database, &json!({ "user": "outbill_nobody", "password": "not a secret" }));
    let error = error_of(&database, nobody).await;
    assert!(error.contains("refuses the user") && error.contains("outbill_nobody"), "{error}");
    let error = error_of(&database, parts(&database, &json!({ "port": 1 }))).await;
    assert!(error.contains("cannot connect to 127.0.0.1:1") && error.contains("refused"), "{error}");
    let error = error_of(&database, json!({ "url": database.url.replace(&database.name, "nowhere") })).await;
    assert!(error.contains("nowhere") && error.contains("store.database"), "{error}");
}

async fn a_session_reads_what_is_committed_in_the_servers_zone(database: Arc<Database>) {
    let opened = default_store(&database).await;
    insert(&database, "order.paid", 1..=1).await;
    let isolation = if database.kind == Kind::MariaDb { "@@tx_isolation" } else { "@@transaction_isolation" };
    database.execute("CREATE TABLE sessions (zone text, isolation text, autocommit int)").await;
    database
        .execute(&format!(
            "CREATE TRIGGER look AFTER UPDATE ON async_bill FOR EACH ROW \
             INSERT INTO sessions VALUES (@@time_zone, {isolation}, @@autocommit)"
        ))
        .await;
    let page = opened.store.fetch(&fresh()).await.unwrap();
    opened.store.settle(&[settlement(&page.rows[0], Verdict::Done)]).await.unwrap();
    assert_eq!(database.value("isolation", "sessions").await, "READ-COMMITTED");
    assert_eq!(database.value("zone", "sessions").await, database.value("@@global.time_zone", "dual").await);
    assert_eq!(database.value("autocommit", "sessions").await, "1");
}

/// The tests beside this one work as administrators, whom `read_only` does not stop.
async fn a_read_only_server_is_unavailable_and_comes_back(database: Arc<Database>) {
    default_store(&database).await;
    insert(&database, "order.paid", 1..=1).await;
    create_user(&database, "secret").await;
    let opened = store(&database, parts(&database, &json!({ "password": "secret" }))).await;
    let page = opened.store.fetch(&fresh()).await.unwrap();
    let done = [settlement(&page.rows[0], Verdict::Done)];
    database.execute("SET GLOBAL read_only = 1").await;
    let refused = opened.store.settle(&done).await;
    database.execute("SET GLOBAL read_only = 0").await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    assert_eq!(opened.store.settle(&done).await.unwrap(), 1);
    drop_user(&database).await;
}

async fn a_stranger_with_a_certificate_is_refused(database: Arc<Database>) {
    database.create_tables().await;
    store(&database, json!({ "tls": { "mode": "required" } })).await;
    for mode in ["verify_ca", "verify_full"] {
        let error = error_of(&database, json!({ "tls": { "mode": mode } })).await;
        assert!(error.contains("store.tls.ca"), "{mode}: {error}");
    }
    let folder = database.value("@@datadir", "dual").await;
    let ca = format!("{folder}/ca.pem");
    if std::fs::exists(&ca).unwrap_or(false) {
        store(&database, json!({ "tls": { "mode": "verify_ca", "ca": ca } })).await;
        let error = error_of(&database, json!({ "tls": { "mode": "verify_full", "ca": ca } })).await;
        assert!(error.contains("verify_ca") || error.contains("host name"), "{error}");
    }
}

async fn a_sha2_login_wants_encryption(database: Arc<Database>) {
    database.create_tables().await;
    create_user(&database, "secret").await;
    let plain = parts(&database, &json!({ "password": "secret", "tls": { "mode": "disabled" } }));
    let error = error_of(&database, plain).await;
    assert!(error.contains("caching_sha2_password") && error.contains("store.tls.mode"), "{error}");
    drop_user(&database).await;
}
