//! A payload arrives as the database gives it, or is rejected by name.

use crate::support::{Kind, LONG, Shop};

on_both_databases!(
    json_payloads_arrive_byte_for_byte,
    text_payloads_arrive_byte_for_byte,
    bytes_of_a_blob_arrive_untouched,
    heavy_large_rows_are_read_within_the_limit_on_memory,
);

const NUMBERS: &str = r#"{"b":1,"a":12345678901234567890,"p":1.10}"#;
const EMOJI: &str = r#"{"text": "付款 🎉 é"}"#;
const ESCAPED_NUL: &str = r#"{"nul": "a\u0000b"}"#;

fn large(bytes: usize) -> String {
    format!("\"{}\"", "x".repeat(bytes - 2))
}

fn as_sql(payload: &[u8]) -> String {
    let digits: Vec<String> = payload.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("x'{}'", digits.concat())
}

/// Inserts each payload and asserts that each arrives as `SELECT payload` gives it.
async fn assert_all_arrive(shop: &Shop, payloads: &[(&str, Option<String>)]) {
    let ledger = shop.broker.consume_all().await;
    let config = shop.config().sink("max_message", "2MiB");
    let outbill = shop.run(&config).await;
    for (name, payload) in payloads {
        let value = payload.as_ref().map_or("NULL".to_owned(), Clone::clone);
        let insert = "INSERT INTO async_bill (biz_type, biz_id, payload) VALUES";
        shop.database.execute(format!("{insert} ('order.paid', '{name}', {value})")).await;
    }
    shop.wait_for(payloads.len(), "status <> 0").await;
    outbill.terminate(LONG).await;
    for (name, payload) in payloads {
        let select = format!("SELECT payload FROM async_bill WHERE biz_id = '{name}'");
        let stored = shop.database.bytes(select).await;
        assert_eq!(stored.is_none(), payload.is_none(), "{name}");
        if *name == "over" {
            let length = stored.unwrap().len();
            let reason =
                "SELECT error FROM outbill_attempt WHERE message_id LIKE '%over%' OR error_class LIKE '%large'";
            let reason = shop.database.text(reason).await;
            assert!(reason.contains(&length.to_string()), "rejected with its size, {length}: {reason}");
            assert_eq!(shop.database.count("biz_id = 'over' AND status = 2").await, 1);
        } else {
            let message = ledger.message(&format!("order.paid:{name}")).await;
            assert!(message.body == stored.unwrap_or_default(), "{name} is not what the database gives");
        }
    }
    assert_eq!(shop.database.count("status = 1").await, payloads.iter().filter(|(name, _)| *name != "over").count());
}

async fn json_payloads_arrive_byte_for_byte(kind: Kind) {
    let Some(shop) = Shop::open(kind).await else { return };
    let text = |text: &str| Some(format!("CONVERT({} USING utf8mb4)", as_sql(text.as_bytes())));
    let payloads = [
        ("numbers", text(NUMBERS)),
        ("emoji", text(EMOJI)),
        ("nul", text(ESCAPED_NUL)),
        ("null", None),
        ("json-null", text("null")),
        ("one-mb", text(&large(1 << 20))),
        ("over", text(&large((2 << 20) + 1))),
    ];
    assert_all_arrive(&shop, &payloads).await;
}

async fn text_payloads_arrive_byte_for_byte(kind: Kind) {
    let Some(shop) = Shop::open(kind).await else { return };
    shop.database.execute("ALTER TABLE async_bill MODIFY payload longtext DEFAULT NULL").await;
    let text = |text: &str| Some(format!("CONVERT({} USING utf8mb4)", as_sql(text.as_bytes())));
    let payloads = [
        ("numbers", text(NUMBERS)),
        ("emoji", text(EMOJI)),
        ("nul", text(ESCAPED_NUL)),
        ("raw-nul", text("a\0b")),
        ("empty", text("")),
        ("null", None),
        ("no-json", text("a=1&b=2")),
        ("one-mb", text(&large(1 << 20))),
        ("over", text(&large((2 << 20) + 1))),
    ];
    assert_all_arrive(&shop, &payloads).await;
}

async fn bytes_of_a_blob_arrive_untouched(kind: Kind) {
    let Some(shop) = Shop::open(kind).await else { return };
    shop.database.execute("ALTER TABLE async_bill MODIFY payload longblob DEFAULT NULL").await;
    let payloads = [
        ("invalid-utf8", Some(as_sql(b"\xff\xfe\x00\x80abc\xed\xa0\x80"))),
        ("numbers", Some(as_sql(NUMBERS.as_bytes()))),
        ("empty", Some("''".to_owned())),
        ("null", None),
        ("over", Some(as_sql(&vec![7; (2 << 20) + 1]))),
    ];
    assert_all_arrive(&shop, &payloads).await;
}

/// A page is bounded by bytes, whatever its rows.
async fn heavy_large_rows_are_read_within_the_limit_on_memory(kind: Kind) {
    const ROWS: usize = 60;
    const ROW_MIB: usize = 4;
    const LIMIT_KIB: u64 = 160 << 10;
    let Some(shop) = Shop::open(kind).await else { return };
    let ledger = shop.broker.consume_all().await;
    let config = shop.config().store("poll", "{ interval: 50ms, batch_bytes: 16MiB }");
    shop.database.execute("ALTER TABLE async_bill MODIFY payload longtext DEFAULT NULL").await;
    let insert = "INSERT INTO async_bill (biz_type, biz_id, payload)";
    shop.database.execute(format!("{insert} VALUES ('order.paid', 'giant', REPEAT('g', {}))", 60 << 20)).await;
    for n in 0..ROWS {
        shop.database.execute(format!("{insert} VALUES ('order.paid', 'n{n}', REPEAT('x', {}))", ROW_MIB << 20)).await;
    }
    let outbill = shop.run(&config).await;
    shop.wait_for(ROWS, "status = 1").await;
    shop.wait_for(1, "biz_id = 'giant' AND status = 2").await;
    let peak = outbill.peak_memory_kib();
    outbill.terminate(LONG).await;
    assert_eq!(ledger.complete().await, (ROWS, 0));
    assert!(peak < LIMIT_KIB, "{peak} KiB were resident");
}
