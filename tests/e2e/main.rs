//! The real binary against real MariaDB, MySQL and RabbitMQ: what a team sees that puts Outbill beside its application.
//!
//! Each file is one promise. The servers come from `OUTBILL_TEST_MARIADB_URL`, `OUTBILL_TEST_MYSQL_URL` and
//! `OUTBILL_TEST_RABBITMQ_URL` (`make test` starts them); a test that disturbs a server starts a private one. Each test has
//! a database, an exchange and queues of its own, so that all may run at once.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test ends where something is wrong")]
#![allow(clippy::print_stderr, reason = "what was skipped or went wrong has to be seen")]
#![allow(clippy::disallowed_methods, reason = "tests are outside the process that the rules are for")]
#![allow(clippy::large_futures, reason = "a test's future lives on its own")]

/// Runs each scenario on both databases, as `mariadb::name` and `mysql::name`.
macro_rules! on_both_databases {
    ($($name:ident),+ $(,)?) => {
        mod mariadb {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name($crate::support::Kind::MariaDb).await;
            })+
        }
        mod mysql {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name($crate::support::Kind::MySql).await;
            })+
        }
    };
}

mod backoff;
mod commands;
mod commit;
mod crash;
mod credentials;
mod fairness;
mod guilty;
mod hold;
mod load;
mod mapping;
mod message_id;
mod neighbours;
mod outage;
mod payload;
mod privileges;
mod shutdown;
mod support;
mod time_zone;
