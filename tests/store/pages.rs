//! Fetching: order, cursors, filters and bounds.

use std::sync::Arc;

use serde_json::json;

use crate::{
    after, bill, default_store, due, fresh, ids, insert, of_types, on_every_store, store,
    support::databases::{Database, Kind},
};
use outbill::store::{FetchRequest, Row, StoreError};

on_every_store! {
    fresh_bills_come_in_id_order_page_by_page,
    due_bills_come_by_time_and_then_id_and_scheduled_ones_stay,
    many_bills_of_one_second_are_passed_once,
    a_filtered_page_passes_what_it_does_not_want,
    a_filter_goes_by_bytes,
    a_filtered_page_examines_one_window,
    a_page_ends_with_the_row_that_fills_its_bytes,
    a_filtered_page_ends_with_the_row_that_fills_its_bytes,
    heavy_bills_are_read_although_light_ones_between_mislead_about_the_usual_weight,
    a_giant_payload_is_named_with_its_size_and_not_read,
    a_bill_arrives_with_every_column,
    a_payload_is_the_databases_bytes,
    an_empty_queue_is_exhausted,
    where_leaves_rows_out_of_pages_and_cursors_pass_them,
    a_dropped_table_is_unavailable,
}

async fn fresh_bills_come_in_id_order_page_by_page(database: Arc<Database>) {
    let opened = default_store(&database).await;
    insert(&database, "order.paid", 1..=25).await;
    database.execute("UPDATE async_bill SET status = 1 WHERE id = 3").await;
    database.execute("UPDATE async_bill SET status = 7 WHERE id = 4").await;
    let first = opened.store.fetch(&FetchRequest { rows: 10, ..fresh() }).await.unwrap();
    assert_eq!(ids(&first), [1, 2, 5, 6, 7, 8, 9, 10, 11, 12]);
    assert!(!first.exhausted);
    let second = opened.store.fetch(&FetchRequest { rows: 20, after: after(&first), ..fresh() }).await.unwrap();
    assert_eq!(ids(&second), (13..=25).collect::<Vec<_>>());
    assert!(second.exhausted);
    let third = opened.store.fetch(&FetchRequest { after: after(&second), ..fresh() }).await.unwrap();
    assert!(third.rows.is_empty() && third.end.is_none() && third.exhausted);
}

async fn due_bills_come_by_time_and_then_id_and_scheduled_ones_stay(database: Arc<Database>) {
    let opened = default_store(&database).await;
    insert(&database, "order.paid", 1..=6).await;
    for (id, time) in [
        (1, "2020-01-03 00:00:00"),
        (2, "2020-01-01 00:00:00"),
        (3, "2020-01-01 00:00:00"),
        (4, "2099-01-01 00:00:00"),
        (5, "2020-01-02 00:00:00"),
    ] {
        database.execute(&format!("UPDATE async_bill SET next_retry_time = '{time}' WHERE id = {id}")).await;
    }
    let page = opened.store.fetch(&due()).await.unwrap();
    assert_eq!(ids(&page), [2, 3, 5, 1]);
    assert!(page.exhausted);
    let mut seen = Vec::new();
    let mut request = FetchRequest { rows: 1, ..due() };
    for _ in 0..4 {
        let page = opened.store.fetch(&request).await.unwrap();
        seen.extend(ids(&page));
        request.after = after(&page);
    }
    assert_eq!(seen, [2, 3, 5, 1]);
    assert_eq!(ids(&opened.store.fetch(&fresh()).await.unwrap()), [6]);
}

async fn many_bills_of_one_second_are_passed_once(database: Arc<Database>) {
    let opened = default_store(&database).await;
    insert(&database, "order.paid", 1..=500).await;
    database.execute("UPDATE async_bill SET next_retry_time = '2020-01-01 00:00:00'").await;
    for wanted in [None, Some(of_types(&["order.paid"]))] {
        let mut request = FetchRequest { rows: 70, wanted, ..due() };
        let mut seen = Vec::new();
        loop {
            let page = opened.store.fetch(&request).await.unwrap();
            seen.extend(ids(&page));
            if page.exhausted {
                break;
            }
            request.after = after(&page);
        }
        assert_eq!(seen, (1..=500).collect::<Vec<_>>());
    }
}

async fn a_filtered_page_passes_what_it_does_not_want(database: Arc<Database>) {
    let opened = default_store(&database).await;
    insert(&database, "sms.send", 1..=50).await;
    insert(&database, "order.paid", 51..=60).await;
    insert(&database, "sms.send", 61..=70).await;
    let wanted = Some(of_types(&["order.paid"]));
    let page = opened.store.fetch(&FetchRequest { rows: 4, wanted: wanted.clone(), ..fresh() }).await.unwrap();
    assert_eq!(ids(&page), [51, 52, 53, 54]);
    assert!(!page.exhausted);
    let page =
        opened.store.fetch(&FetchRequest { after: after(&page), wanted: wanted.clone(), ..fresh() }).await.unwrap();
    assert_eq!(ids(&page), [55, 56, 57, 58, 59, 60]);
    assert!(page.exhausted);
    assert_eq!(page.end.unwrap().id.as_integer(), Some(70));
    let page = opened.store.fetch(&FetchRequest { wanted: Some(of_types(&["none"])), ..fresh() }).await.unwrap();
    assert!(page.rows.is_empty() && page.exhausted && page.end.is_some());
}

async fn a_filter_goes_by_bytes(database: Arc<Database>) {
    let opened = default_store(&database).await;
    insert(&database, "sms.send", 1..=1).await;
    insert(&database, "SMS.send", 2..=2).await;
    insert(&database, "sms.send ", 3..=3).await;
    let page = opened.store.fetch(&FetchRequest { wanted: Some(of_types(&["sms.send"])), ..fresh() }).await.unwrap();
    assert_eq!(ids(&page), [1]);
}

async fn a_filtered_page_examines_one_window(database: Arc<Database>) {
    let opened = default_store(&database).await;
    let window = u64::try_from(FetchRequest::WINDOW).unwrap();
    insert(&database, "sms.send", 1..=window + 5).await;
    insert(&database, "order.paid", window + 6..=window + 6).await;
    let wanted = Some(of_types(&["order.paid"]));
    let page = opened.store.fetch(&FetchRequest { wanted: wanted.clone(), ..fresh() }).await.unwrap();
    assert!(page.rows.is_empty() && !page.exhausted);
    assert_eq!(page.end.as_ref().unwrap().id.as_integer(), Some(i128::from(window)));
    let page = opened.store.fetch(&FetchRequest { wanted, after: after(&page), ..fresh() }).await.unwrap();
    assert_eq!(ids(&page), [i128::from(window) + 6]);
    assert!(page.exhausted);
}

/// `count` bills of 100 kB each, so that many do not fit the buffers between server and client.
async fn insert_heavy(database: &Database, count: u64) {
    for id in 1..=count {
        let payload = format!("{{\"x\":\"{}\"}}", "y".repeat(100_000));
        database
            .execute(&format!(
                "INSERT INTO async_bill (id, biz_type, biz_id, payload) VALUES ({id}, 'order.paid', 'k{id}', '{payload}')"
            ))
            .await;
    }
}

async fn a_page_ends_with_the_row_that_fills_its_bytes(database: Arc<Database>) {
    let opened = default_store(&database).await;
    insert_heavy(&database, 40).await;
    let mut request = FetchRequest { bytes: 250_000, ..fresh() };
    let mut seen = Vec::new();
    loop {
        let page = opened.store.fetch(&request).await.unwrap();
        assert!(page.rows.len() <= 3, "{} rows", page.rows.len());
        seen.extend(ids(&page));
        if page.exhausted {
            break;
        }
        request.after = after(&page);
    }
    assert_eq!(seen, (1..=40).collect::<Vec<_>>());
}

async fn a_filtered_page_ends_with_the_row_that_fills_its_bytes(database: Arc<Database>) {
    let opened = default_store(&database).await;
    insert_heavy(&database, 40).await;
    // Against the order of ids, which is the order in which rows are loaded.
    for id in 1..=40 {
        let sql = format!("UPDATE async_bill SET next_retry_time = '2020-01-01 00:00:{:02}' WHERE id = {id}", 40 - id);
        database.execute(&sql).await;
    }
    let mut request = FetchRequest { bytes: 250_000, wanted: Some(of_types(&["order.paid"])), ..due() };
    let mut seen = Vec::new();
    loop {
        let page = opened.store.fetch(&request).await.unwrap();
        assert!(page.rows.len() <= 3, "{} rows", page.rows.len());
        seen.extend(ids(&page));
        if page.exhausted {
            break;
        }
        request.after = after(&page);
    }
    assert_eq!(seen, (1..=40).rev().collect::<Vec<_>>());
}

async fn heavy_bills_are_read_although_light_ones_between_mislead_about_the_usual_weight(database: Arc<Database>) {
    let opened = default_store(&database).await;
    insert_heavy(&database, 20).await;
    for id in 1..=20 {
        let sql = format!("UPDATE async_bill SET next_retry_time = '2020-01-01 00:00:{:02}' WHERE id = {id}", 20 - id);
        database.execute(&sql).await;
    }
    insert(&database, "order.paid", 1_001..=1_100).await;
    let mut request = FetchRequest { bytes: 250_000, wanted: Some(of_types(&["order.paid"])), ..due() };
    let mut seen = Vec::new();
    for _ in 0..20 {
        opened.store.fetch(&fresh()).await.unwrap();
        let page = opened.store.fetch(&request).await.unwrap();
        seen.extend(ids(&page));
        request.after = after(&page);
        if page.exhausted {
            break;
        }
    }
    assert_eq!(seen, (1..=20).rev().collect::<Vec<_>>());
}

async fn a_giant_payload_is_named_with_its_size_and_not_read(database: Arc<Database>) {
    let opened = default_store(&database).await;
    insert_heavy(&database, 1).await;
    insert(&database, "order.paid", 2..=2).await;
    for wanted in [None, Some(of_types(&["order.paid"]))] {
        let page = opened.store.fetch(&FetchRequest { max_payload: 1_000, wanted, ..fresh() }).await.unwrap();
        let Row::Invalid { class, problem, bill_type, .. } = &page.rows[0] else { panic!("{page:?}") };
        assert_eq!((*class, bill_type.as_deref()), ("payload_too_large", Some("order.paid")));
        assert!(problem.contains("has 10000") && problem.contains("limit is 1000"), "{problem}");
        assert_eq!(bill(&page.rows[1]).id.as_integer(), Some(2));
    }
}

async fn a_bill_arrives_with_every_column(database: Arc<Database>) {
    database.create_tables().await;
    for column in
        ["headers varchar(255)", "message_id varchar(64)", "version int", "region varchar(8)", "shop_no bigint"]
    {
        database.execute(&format!("ALTER TABLE async_bill ADD COLUMN {column}")).await;
    }
    let opened = store(
        &database,
        json!({ "columns": { "headers": "headers", "message_id": "message_id", "version": "version",
            "extra": { "region": "region", "shop": "shop_no" } } }),
    )
    .await;
    let values = "(1, 'order.paid', '1001', '{}', '{\"h\":1}', 'm-1', 3, 'é', 77, '2024-01-02 03:04:05', 2)";
    database
        .execute(&format!(
            "INSERT INTO async_bill (id, biz_type, biz_id, payload, headers, message_id, version, region, shop_no, created_at, \
             retry_count) VALUES {values}"
        ))
        .await;
    for wanted in [None, Some(of_types(&["order.paid"]))] {
        let page = opened.store.fetch(&FetchRequest { wanted, ..fresh() }).await.unwrap();
        let bill = bill(&page.rows[0]);
        assert_eq!((bill.bill_type.as_str(), bill.key.as_deref()), ("order.paid", Some("1001")));
        assert_eq!((bill.headers.as_deref(), bill.message_id.as_deref()), (Some("{\"h\":1}"), Some("m-1")));
        assert_eq!(bill.extra, [Some("é".to_owned()), Some("77".to_owned())]);
        assert_eq!((bill.seen.retry_count, bill.seen.version.as_deref()), (Some(2), Some("3")));
        let created = match database.kind {
            Kind::Sqlite => "strftime('%s', created_at)",
            _ => "UNIX_TIMESTAMP(created_at)",
        };
        let created = database.value(created, "async_bill").await;
        assert_eq!(bill.created_at_s.unwrap().to_string(), created);
    }
}

async fn a_payload_is_the_databases_bytes(database: Arc<Database>) {
    database.create_tables().await;
    let blob = if database.kind == Kind::Sqlite { "blob" } else { "longblob" };
    database.execute(&format!("ALTER TABLE async_bill ADD COLUMN body {blob}")).await;
    let opened = store(&database, json!({ "columns": { "payload": "body" } })).await;
    let bodies: [(&str, Option<&[u8]>); 5] = [
        ("'{\"b\":1,\"a\":12345678901234567890,\"p\":1.10}'", Some(br#"{"b":1,"a":12345678901234567890,"p":1.10}"#)),
        ("X'00FF80C3'", Some(&[0, 0xff, 0x80, 0xc3])),
        ("'😀'", Some("😀".as_bytes())),
        ("''", Some(b"")),
        ("NULL", None),
    ];
    for (n, (literal, _)) in bodies.iter().enumerate() {
        let sql =
            format!("INSERT INTO async_bill (id, biz_type, biz_id, body) VALUES ({}, 'a', 'k{n}', {literal})", n + 1);
        database.execute(&sql).await;
    }
    let page = opened.store.fetch(&fresh()).await.unwrap();
    let read: Vec<Option<&[u8]>> = page.rows.iter().map(|row| bill(row).payload.as_deref()).collect();
    assert_eq!(read, bodies.map(|(_, bytes)| bytes));
}

async fn an_empty_queue_is_exhausted(database: Arc<Database>) {
    let opened = default_store(&database).await;
    for request in [fresh(), due(), FetchRequest { wanted: Some(of_types(&["a"])), ..fresh() }] {
        let page = opened.store.fetch(&request).await.unwrap();
        assert!(page.rows.is_empty() && page.exhausted && page.end.is_none());
    }
}

async fn where_leaves_rows_out_of_pages_and_cursors_pass_them(database: Arc<Database>) {
    database.create_tables().await;
    let opened = store(&database, json!({ "where": "biz_id <> 'k2' OR biz_id IS NULL -- of the shop" })).await;
    insert(&database, "order.paid", 1..=3).await;
    let page = opened.store.fetch(&fresh()).await.unwrap();
    assert_eq!(ids(&page), [1, 3]);
    database.execute("UPDATE async_bill SET biz_id = 'gone' WHERE id = 2").await;
    database.execute("UPDATE async_bill SET biz_id = 'k2' WHERE id = 3").await;
    let settled: Vec<_> = page.rows.iter().map(|row| crate::settlement(row, outbill::store::Verdict::Done)).collect();
    assert_eq!(opened.store.settle(&settled).await.unwrap(), 1);
    let page = opened.store.fetch(&fresh()).await.unwrap();
    assert_eq!(ids(&page), [2]);
    assert_eq!(page.end.unwrap().id.as_integer(), Some(3));
}

async fn a_dropped_table_is_unavailable(database: Arc<Database>) {
    let opened = default_store(&database).await;
    database.execute("DROP TABLE async_bill").await;
    let error = opened.store.fetch(&fresh()).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
}
