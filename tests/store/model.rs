//! The store in memory keeps the same rules as SQLite: what one answers to any run of calls, the other answers too.

use std::{sync::Arc, time::Duration};

use outbill::store::{
    FetchRequest, Ledger as _, Mark, Opened, Page, Queue, Selection, Store as _, Verdict,
    memory::{MemoryStore, Status},
};
use proptest::{collection::vec, prelude::*, test_runner::TestCaseError};

use crate::{
    default_store, ids, of_types, retry_in, settlement,
    support::databases::{Database, Kind},
};

const TYPES: [&str; 3] = ["a", "b", "A"];

#[derive(Clone, Debug)]
enum Call {
    Commit {
        id: u8,
        kind: usize,
    },
    /// The application schedules a bill for a past second, for far ahead, or for now.
    Schedule {
        id: u8,
        to: Option<bool>,
    },
    /// The application changes a status of its own accord.
    Close {
        id: u8,
    },
    /// Reads a page and settles its rows; of every other one with what an older look saw.
    Work {
        queue: Queue,
        rows: usize,
        filtered: bool,
        verdict: usize,
        stale: bool,
    },
    Retry {
        kind: usize,
        limit: usize,
    },
}

fn call() -> impl Strategy<Value = Call> {
    let id = 1_u8..20;
    prop_oneof![
        4 => (id.clone(), 0..TYPES.len()).prop_map(|(id, kind)| Call::Commit { id, kind }),
        2 => (id.clone(), any::<Option<bool>>()).prop_map(|(id, to)| Call::Schedule { id, to }),
        1 => id.prop_map(|id| Call::Close { id }),
        4 => (any::<bool>(), 1_usize..6, any::<bool>(), 0_usize..3, any::<bool>()).prop_map(|(due, rows, filtered, verdict, stale)| {
            Call::Work { queue: if due { Queue::Due } else { Queue::Fresh }, rows, filtered, verdict, stale }
        }),
        1 => (0..TYPES.len(), 1_usize..4).prop_map(|(kind, limit)| Call::Retry { kind, limit }),
    ]
}

#[test]
fn memory_and_sqlite_answer_alike() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = ProptestConfig { cases: 48, ..ProptestConfig::default() };
    proptest!(config, |(calls in vec(call(), 1..40))| runtime.block_on(compare(calls))?);
}

struct Pair {
    database: Database,
    sqlite: Opened,
    memory: Arc<MemoryStore>,
}

async fn compare(calls: Vec<Call>) -> Result<(), TestCaseError> {
    let database = Database::create(Kind::Sqlite).await.unwrap();
    let sqlite = default_store(&database).await;
    let pair = Pair { database, sqlite, memory: MemoryStore::new() };
    for call in calls {
        pair.make(call).await?;
    }
    for status in [Status::Pending, Status::Done, Status::Failed, Status::Compensated] {
        let sql = format!("async_bill WHERE status = {}", status as u8);
        prop_assert_eq!(pair.database.value("COUNT(*)", &sql).await, pair.memory.count(status).to_string());
    }
    Ok(())
}

impl Pair {
    async fn make(&self, call: Call) -> Result<(), TestCaseError> {
        match call {
            Call::Commit { id, kind } if self.memory.bill(id.into()).is_none() => {
                let bill_type = TYPES[kind];
                self.memory.commit(id.into(), bill_type, Some(b"{}"));
                let sql = format!(
                    "INSERT INTO async_bill (id, biz_type, biz_id, payload) VALUES ({id}, '{bill_type}', 'k{id}', '{{}}')"
                );
                self.database.execute(&sql).await;
            }
            Call::Commit { .. } => {}
            Call::Schedule { id, to } => self.schedule(id, to).await,
            Call::Close { id } => {
                self.memory.change(id.into(), |bill| bill.status = Status::Compensated);
                self.database.execute(&format!("UPDATE async_bill SET status = 3 WHERE id = {id}")).await;
            }
            Call::Work { queue, rows, filtered, verdict, stale } => {
                let wanted = filtered.then(|| of_types(&["a"]));
                let request = FetchRequest { queue, after: None, rows, bytes: 1 << 30, max_payload: 1 << 20, wanted };
                let pages = self.fetch(&request).await?;
                if stale && let Some(id) = ids(&pages[0]).first() {
                    self.schedule(u8::try_from(*id).unwrap(), Some(false)).await;
                }
                self.settle(&pages, verdict).await?;
            }
            Call::Retry { kind, limit } => {
                let selection = Selection::Type(TYPES[kind].to_owned());
                let memory = self.memory.retry(&selection, 100, true).await.unwrap();
                let sqlite = self.sqlite.ledger.retry(&selection, 100, true).await.unwrap();
                prop_assert_eq!(&memory, &sqlite);
                let chosen = Selection::Ids(memory.iter().take(limit).map(ToString::to_string).collect());
                let memory = self.memory.retry(&chosen, limit, false).await.unwrap();
                prop_assert_eq!(memory, self.sqlite.ledger.retry(&chosen, limit, false).await.unwrap());
                for id in 1..20 {
                    // Both are due now, by two clocks: let it be the same second long past.
                    if self
                        .memory
                        .bill(id.into())
                        .is_some_and(|bill| bill.next_retry_ms.is_some_and(|ms| (20..3_600_000).contains(&ms)))
                    {
                        self.schedule(id, Some(true)).await;
                    }
                }
            }
        }
        Ok(())
    }

    /// `None`: no time; `true`: long past, in the order of ids from behind; `false`: far ahead.
    async fn schedule(&self, id: u8, to: Option<bool>) {
        let past = 20 - u64::from(id);
        self.memory.change(id.into(), |bill| {
            bill.next_retry_ms = to.map(|is_past| if is_past { past } else { 9_000_000_000 });
        });
        let time = match to {
            None => "NULL".to_owned(),
            Some(true) => format!("'2020-01-01 00:00:{past:02}'"),
            Some(false) => "'2099-01-01 00:00:00'".to_owned(),
        };
        self.database.execute(&format!("UPDATE async_bill SET next_retry_time = {time} WHERE id = {id}")).await;
    }

    async fn fetch(&self, request: &FetchRequest) -> Result<[Page; 2], TestCaseError> {
        let at = |mark: &Option<Mark>| mark.as_ref().map(|mark| mark.id.clone());
        // Times begin with the store in memory: 20 ms on, every past one is past.
        while self.memory.now_ms() < 20 {
            tokio::task::yield_now().await;
        }
        let pages = [self.memory.fetch(request).await.unwrap(), self.sqlite.store.fetch(request).await.unwrap()];
        prop_assert_eq!(ids(&pages[0]), ids(&pages[1]));
        prop_assert_eq!(at(&pages[0].end), at(&pages[1].end), "{:?}", request);
        Ok(pages)
    }

    async fn settle(&self, [memory, sqlite]: &[Page; 2], verdict: usize) -> Result<(), TestCaseError> {
        let verdict = [Verdict::Done, retry_in(Duration::from_hours(1)), crate::failed()][verdict].clone();
        let settlements =
            |page: &Page| page.rows.iter().map(|row| settlement(row, verdict.clone())).collect::<Vec<_>>();
        let changed = self.memory.settle(&settlements(memory)).await.unwrap();
        prop_assert_eq!(changed, self.sqlite.store.settle(&settlements(sqlite)).await.unwrap());
        Ok(())
    }
}
