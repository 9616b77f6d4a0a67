//! From the settings to a database that can be connected to.

use std::{str::FromStr, sync::Arc, time::Duration};

use sqlx::{
    ConnectOptions,
    mysql::{MySqlConnectOptions, MySqlSslMode},
    sqlite::{SqliteConnectOptions, SqliteJournalMode},
};

use super::{
    Ledger, Store,
    dialect::{MySql, Sqlite},
    facts::Facts,
    settings::{Settings, TlsMode},
    sql::SqlStore,
};
use crate::secret::{Secret, SecretSource};

/// How long a statement of ours waits for somebody else's lock on the server: a whole batch waits with the one row that is
/// locked, so this is the shortest time that MySQL knows.
const LOCK_WAIT: Duration = Duration::from_secs(1);
/// How long SQLite, where every writer locks the whole file, waits for another.
const FILE_LOCK_WAIT: Duration = Duration::from_secs(5);

/// Prepared statements that a connection keeps, more than there are different ones.
const STATEMENTS_MAX: usize = 96;

/// One store behind its two contracts, and what was found out about it.
#[derive(Debug)]
pub struct Opened {
    pub store: Arc<dyn Store>,
    pub ledger: Arc<dyn Ledger>,
    pub facts: Facts,
}

/// Connects and reads the facts. `instance` names this process in the attempt log.
pub async fn open(settings: &Settings, instance: &str) -> anyhow::Result<Opened> {
    Ok(match Database::new(settings).map_err(anyhow::Error::msg)? {
        Database::MySql(mysql) => opened(SqlStore::open(*mysql, settings, instance).await?),
        Database::Sqlite(sqlite) => opened(SqlStore::open(*sqlite, settings, instance).await?),
    })
}

fn opened<D: super::dialect::Dialect>(store: SqlStore<D>) -> Opened {
    let facts = store.facts().clone();
    let store = Arc::new(store);
    Opened { ledger: Arc::<SqlStore<D>>::clone(&store), store, facts }
}

/// Which database the settings mean, and how to connect to it.
#[derive(Debug)]
pub enum Database {
    MySql(Box<MySql>),
    Sqlite(Box<Sqlite>),
}

impl Database {
    /// Reads the settings; connects to nothing.
    ///
    /// # Errors
    /// What is wrong with them, in one sentence without any secret.
    pub fn new(settings: &Settings) -> Result<Self, String> {
        match &settings.url {
            Some(url) if url.expose().starts_with("sqlite:") => sqlite(url).map(Box::new).map(Self::Sqlite),
            Some(url) => mysql(mysql_url(url)?, settings).map(Box::new).map(Self::MySql),
            None => mysql(MySqlConnectOptions::new(), settings).map(Box::new).map(Self::MySql),
        }
    }
}

fn sqlite(url: &Secret) -> Result<Sqlite, String> {
    let options = SqliteConnectOptions::from_str(url.expose())
        .map_err(|_error| "store.url does not parse; write sqlite:///path/to/file.db".to_owned())?;
    let options = options
        .create_if_missing(false)
        .journal_mode(SqliteJournalMode::Wal)
        .busy_timeout(FILE_LOCK_WAIT)
        .statement_cache_capacity(STATEMENTS_MAX)
        .disable_statement_logging();
    Ok(Sqlite { options })
}

const ENCODE: &str = "special characters in user and password have to be percent-encoded (`@` as %40, `:` as %3A, `/` as %2F, \
    `?` as %3F, `#` as %23, `%` as %25); or write store.host, store.user and store.password instead, which need no encoding";

/// The error of a URL that does not parse may quote it: it is left out.
fn mysql_url(url: &Secret) -> Result<MySqlConnectOptions, String> {
    let text = url.expose();
    let known = text.strip_prefix("mysql://").or_else(|| text.strip_prefix("mariadb://"));
    let Some(rest) = known else {
        return Err("store.url has to begin with mysql://, mariadb:// or sqlite://".to_owned());
    };
    // Before the host nothing but `@` may stand unencoded, and a URL's end has no use for a fragment.
    let (address, query) = rest.split_once('?').unwrap_or((rest, ""));
    if address.contains('#')
        || query.contains(['@', '#'])
        || address.split_once('/').is_some_and(|(_, path)| path.contains('@'))
    {
        return Err(format!("store.url does not parse: {ENCODE}"));
    }
    if let Some((option, _)) = query.split('&').find_map(|pair| pair.split_once('=')) {
        return Err(format!(
            "store.url takes no options (it has {option:?}); use the keys of `store`, such as store.tls"
        ));
    }
    MySqlConnectOptions::from_str(text).map_err(|_error| format!("store.url does not parse: {ENCODE}"))
}

fn mysql(base: MySqlConnectOptions, settings: &Settings) -> Result<MySql, String> {
    let mut options = base
        // The application's DATETIMEs are in the server's time zone, and its SQL mode is none of our business.
        .timezone(None)
        .pipes_as_concat(false)
        .no_engine_substitution(false)
        .charset("utf8mb4")
        .statement_cache_capacity(STATEMENTS_MAX)
        .disable_statement_logging();
    if let Some(host) = &settings.host {
        options = options.host(host);
    }
    if let Some(port) = settings.port {
        options = options.port(port);
    }
    if let Some(user) = &settings.user {
        options = options.username(user);
    }
    if let Some(database) = &settings.database {
        options = options.database(database);
    }
    if let Some(socket) = &settings.socket {
        options = options.socket(socket);
    }
    let password = match (&settings.password, &settings.password_file) {
        (_, Some(file)) => Some(SecretSource::File(file.clone())),
        (Some(secret), None) => Some(SecretSource::Inline(secret.clone())),
        (None, None) => None,
    };
    Ok(MySql { options: with_tls(options, settings), password, session: session(settings)?, explain })
}

fn with_tls(mut options: MySqlConnectOptions, settings: &Settings) -> MySqlConnectOptions {
    options = options.ssl_mode(match settings.tls.mode {
        TlsMode::Disabled => MySqlSslMode::Disabled,
        TlsMode::Preferred => MySqlSslMode::Preferred,
        TlsMode::Required => MySqlSslMode::Required,
        TlsMode::VerifyCa => MySqlSslMode::VerifyCa,
        TlsMode::VerifyFull => MySqlSslMode::VerifyIdentity,
    });
    if let Some(ca) = &settings.tls.ca {
        options = options.ssl_ca(ca);
    }
    if let (Some(cert), Some(key)) = (&settings.tls.cert, &settings.tls.key) {
        options = options.ssl_client_cert(cert).ssl_client_key(key);
    }
    options
}

/// The statements that set up a connection, once. Each server skips the other's part by its version comment.
fn session(settings: &Settings) -> Result<Vec<String>, String> {
    let wait_s = LOCK_WAIT.as_secs();
    let limit = settings.statement_timeout.0;
    let zone = match &settings.time_zone {
        None => String::new(),
        Some(zone) if zone.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-:/_".contains(&byte)) => {
            format!(", time_zone = '{zone}'")
        }
        Some(_) => return Err("store.time_zone is an offset such as +08:00 or a name such as Europe/Berlin".to_owned()),
    };
    let set = format!(
        "SET autocommit = 1, lock_wait_timeout = {wait_s}, innodb_lock_wait_timeout = {wait_s}{zone} \
         /*M!100101 , max_statement_time = {:.3} */ /*!50708 , max_execution_time = {} */",
        limit.as_secs_f64(),
        limit.as_millis(),
    );
    Ok(vec!["SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED".to_owned(), set])
}

/// What an error of connecting means, with its remedy; `None` leaves it to the server's own words.
fn explain(error: &sqlx::Error, options: &MySqlConnectOptions) -> Option<String> {
    let place = options.get_socket().map_or_else(
        || format!("{}:{}", options.get_host(), options.get_port()),
        |socket| socket.display().to_string(),
    );
    let text = error.to_string();
    let has = |part: &str| text.contains(part);
    let meaning = if let Some(reported) = error.as_database_error() {
        let mysql = reported.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>()?;
        match mysql.number() {
            1044 | 1045 | 1698 => format!("the database refuses the user: {}", reported.message()),
            1049 => format!("{}; check store.database or the end of store.url", reported.message()),
            1040 | 1203 => format!("the database has no connection left: {}", reported.message()),
            1298 => format!("{}; write an offset such as +08:00, or load the time zone tables", reported.message()),
            3159 => "the database takes encrypted connections only; set store.tls.mode: required".to_owned(),
            _ => return None,
        }
    } else if has("does not support TLS") {
        "store.tls.mode wants an encrypted connection and the server has no TLS; enable it there or set store.tls.mode: \
         disabled"
            .to_owned()
    } else if has("rsa") || has("RSA") {
        "the user logs in by caching_sha2_password, which needs an encrypted connection; set store.tls.mode: required"
            .to_owned()
    } else if has("NotValidForName") || has("not valid for name") {
        "the server's certificate is for another host name; set store.host to a name it has, or store.tls.mode: verify_ca".to_owned()
    } else if has("UnknownIssuer") || has("CaUsedAsEndEntity") {
        "the server's certificate is not from an authority known here; name its authority in store.tls.ca".to_owned()
    } else {
        text
    };
    Some(format!("cannot connect to {place}: {meaning}"))
}
