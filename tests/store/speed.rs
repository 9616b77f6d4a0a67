//! How long the hot path takes on a large table. Not part of a usual run:
//! `OUTBILL_SPEED_ROWS=1000000 cargo test --release --test store speed -- --ignored --nocapture --test-threads 1`.

#![allow(clippy::disallowed_methods, reason = "the size of the table comes from the environment")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use outbill::store::{FetchRequest, Mark, Opened, OverviewLimits, Page, Verdict};

use crate::{
    after, attempt, default_store, due, fresh, of_types, retry_in, settlement,
    support::databases::{Database, Kind, with_database},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes, and measures instead of judging"]
async fn mariadb() {
    with_database(Kind::MariaDb, measure).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes, and measures instead of judging"]
async fn mysql() {
    with_database(Kind::MySql, measure).await;
}

/// Two thirds of the rows are done, and of the pending ones one in ten is an `order.paid`; all are 512 bytes long.
async fn measure(database: Arc<Database>) {
    let rows: u64 = std::env::var("OUTBILL_SPEED_ROWS").map_or(200_000, |rows| rows.parse().unwrap());
    let opened = default_store(&database).await;
    fill(&database, rows).await;
    println!("{:?}, {rows} rows", database.kind);

    time("fetch 1,000 fresh from the start", 20, async || {
        opened.store.fetch(&fresh()).await.unwrap();
    })
    .await;
    let mut request = fresh();
    time("fetch 1,000 fresh behind the last page", 50, async || {
        request.after = after(&opened.store.fetch(&request).await.unwrap());
    })
    .await;
    let mut request = FetchRequest { wanted: Some(of_types(&["order.paid"])), ..fresh() };
    time("fetch filtered, one row in ten wanted", 10, async || {
        request.after = after(&opened.store.fetch(&request).await.unwrap());
    })
    .await;
    let mut request = FetchRequest { wanted: Some(of_types(&["none"])), ..fresh() };
    time("fetch filtered, no row wanted", 10, async || {
        request.after = after(&opened.store.fetch(&request).await.unwrap());
    })
    .await;

    let mut from = None;
    let mut pages = Vec::new();
    for _ in 0..30 {
        pages.push(next(&opened, &mut from).await);
    }
    let mut pages = pages.into_iter();
    time("settle 1,000 done", 15, async || settle(&opened, &pages.next().unwrap(), |_| Verdict::Done, false).await)
        .await;
    time("settle 1,000 done with attempts", 5, async || {
        settle(&opened, &pages.next().unwrap(), |_| Verdict::Done, true).await;
    })
    .await;
    let waits = |_| retry_in(Duration::ZERO);
    time("settle 1,000 retries with attempts", 5, async || settle(&opened, &pages.next().unwrap(), waits, true).await)
        .await;
    let mixed = |n| if n % 20 == 0 { retry_in(Duration::ZERO) } else { Verdict::Done };
    time("settle 950 done and 50 retries", 5, async || settle(&opened, &pages.next().unwrap(), mixed, false).await)
        .await;
    time("fetch 1,000 due", 5, async || {
        opened.store.fetch(&due()).await.unwrap();
    })
    .await;
    time("overview", 5, async || {
        let overview = opened.ledger.overview(&OverviewLimits::default()).await.unwrap();
        assert!(overview.pending.is_some() && overview.pending_by_type.is_some(), "{overview:?}");
    })
    .await;
}

async fn next(opened: &Opened, from: &mut Option<Mark>) -> Page {
    let page = opened.store.fetch(&FetchRequest { after: from.clone(), ..fresh() }).await.unwrap();
    *from = after(&page);
    page
}

async fn settle(opened: &Opened, page: &Page, verdict: impl Fn(usize) -> Verdict, logged: bool) {
    let settlements: Vec<_> = page
        .rows
        .iter()
        .enumerate()
        .map(|(n, row)| outbill::store::Settlement {
            attempt: logged.then(|| attempt(1)),
            ..settlement(row, verdict(n))
        })
        .collect();
    assert_eq!(opened.store.settle(&settlements).await.unwrap(), 1_000);
}

async fn fill(database: &Database, rows: u64) {
    let digits = "(SELECT 0 i UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 \
                  UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)";
    for start in (0..rows).step_by(10_000) {
        let status = u8::from(start < rows / 3 * 2);
        database
            .execute(&format!(
                "INSERT INTO async_bill (biz_type, biz_id, status, payload) SELECT IF(n % 10 = 0, 'order.paid', 'sms.send'), n, \
                 {status}, CONCAT('{{\"n\":\"', RPAD(n, 504, 'x'), '\"}}') FROM (SELECT {start} + a.i + 10 * b.i + 100 * c.i + \
                 1000 * d.i AS n FROM {digits} a, {digits} b, {digits} c, {digits} d) numbers ORDER BY n"
            ))
            .await;
    }
    database.execute("ANALYZE TABLE async_bill").await;
}

async fn time(what: &str, times: u32, mut call: impl AsyncFnMut()) {
    let mut all = Vec::new();
    for _ in 0..times {
        let before = Instant::now();
        call().await;
        all.push(before.elapsed());
    }
    all.sort();
    println!("  {what:<45} {:>8.2?} median, {:>8.2?} worst", all[all.len() / 2], all[all.len() - 1]);
}
