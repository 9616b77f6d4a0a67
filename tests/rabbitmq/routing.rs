//! What a message looks like on the queue, and what happens to those that cannot get there.

use bytes::Bytes;
use lapin::types::AMQPValue;
use outbill::{
    decision::{Exposure, Outcome},
    sink::{Health, Sink},
};
use serde_json::json;

use crate::{
    sink,
    support::{
        brokers::{Broker, unique},
        sinks::{Rig, class, message, message_from_row},
    },
};

#[tokio::test]
async fn a_message_arrives_with_its_properties_and_its_payload_byte_for_byte() {
    let Some(broker) = Broker::shared() else { return };
    let application = broker.application().await;
    let (exchange, queue) = (unique("orders"), unique("orders"));
    application.declare_exchange(&exchange).await;
    application.declare_queue(&queue, &[]).await;
    application.bind(&queue, &exchange, "order.*").await;
    let mut rig = Rig::up(sink(&broker, &json!({}))).await;
    let large = format!("[{}0]", "1,".repeat(500_000));
    let bodies = [r#"{"b":1,"a":12345678901234567890,"p":1.10}"#, "\"\u{1f600}\\u0000\"", "", &large];
    for (number, body) in (1..).zip(bodies) {
        let mut sent = message(number, &[&exchange, "order.paid"]);
        sent.body = Bytes::copy_from_slice(body.as_bytes());
        sent.attempt = 3;
        sent.headers = vec![("tenant".to_owned(), json!("t1")), ("weight".to_owned(), json!(1.5))];
        assert_eq!(rig.deliver([sent]).await, [Outcome::Delivered]);
        let got = application.get(&queue).await.expect("it is on the queue");
        assert_eq!(got.data, body.as_bytes());
        let properties = &got.properties;
        assert_eq!(properties.message_id().as_ref().unwrap().as_str(), format!("order.paid:{number}"));
        assert_eq!(properties.kind().as_ref().unwrap().as_str(), "order.paid");
        assert_eq!(properties.app_id().as_ref().unwrap().as_str(), "outbill");
        assert_eq!(properties.content_type().as_ref().unwrap().as_str(), "application/json");
        assert_eq!((properties.delivery_mode(), properties.timestamp()), (&Some(2), &Some(1_700_000_000)));
        let headers = properties.headers().as_ref().unwrap().inner();
        let id = AMQPValue::LongString(number.to_string().into());
        assert_eq!((&headers["outbill-attempt"], &headers["outbill-id"]), (&AMQPValue::LongLongInt(3), &id));
        assert_eq!(headers["tenant"], AMQPValue::LongString("t1".into()));
        assert_eq!(headers["weight"], AMQPValue::Double(1.5));
    }
    application.delete_queue(&queue).await;
    application.delete_exchange(&exchange).await;
    rig.finish().await;
}

#[tokio::test]
async fn of_10_bills_only_those_with_a_missing_exchange_a_long_key_or_large_headers_fail() {
    let Some(broker) = Broker::shared() else { return };
    let application = broker.application().await;
    let queue = unique("ten");
    application.declare_queue(&queue, &[]).await;
    let mut rig = Rig::up(sink(&broker, &json!({}))).await;
    let mut messages: Vec<_> = (0..10).map(|number| message_from_row(number, &["", &queue])).collect();
    messages[4] = message_from_row(4, &[&unique("missing"), &queue]);
    messages[5] = message_from_row(5, &["", &"k".repeat(300)]);
    messages[6].headers = vec![("big".to_owned(), json!("x".repeat(200_000)))];
    // The largest headers that are admitted do fit the broker's frames.
    messages[7].headers = vec![("big".to_owned(), json!("x".repeat(130_800)))];
    let admitted: Vec<_> = messages.iter().map(|message| rig.sink.admit(message).is_ok()).collect();
    assert_eq!(admitted, [true, true, true, true, true, false, false, true, true, true]);
    // Even those that a careless relay hands over cost nobody else anything.
    let outcomes = rig.deliver(messages).await;
    let mut expected = ["delivered"; 10];
    expected[4] = "exchange_missing";
    expected[5] = "too_long";
    expected[6] = "headers_too_large";
    assert_eq!(outcomes.iter().map(class).collect::<Vec<_>>(), expected, "{outcomes:?}");
    assert!([4, 5, 6].iter().all(|place| matches!(outcomes[*place], Outcome::Rejected(_))), "{outcomes:?}");
    assert_eq!(application.drain(&queue).await.len(), 7);
    application.delete_queue(&queue).await;
    rig.finish().await;
}

#[tokio::test]
async fn the_routes_own_missing_exchange_is_its_configurations_fault() {
    let Some(broker) = Broker::shared() else { return };
    let mut rig = Rig::up(sink(&broker, &json!({}))).await;
    let missing = unique("missing");
    let outcomes = rig.deliver((0..20).map(|number| message(number, &[&missing, "k"]))).await;
    let is_right =
        |outcome: &Outcome| matches!(outcome, Outcome::Misconfigured(trouble) if trouble.class == "exchange_missing");
    assert!(outcomes.iter().all(is_right), "{outcomes:?}");
    rig.finish().await;
}

#[tokio::test]
async fn an_exchange_deleted_in_mid_run_charges_only_its_own_messages() {
    let Some(broker) = Broker::shared() else { return };
    let application = broker.application().await;
    let (exchange, queue) = (unique("deleted"), unique("stays"));
    application.declare_exchange(&exchange).await;
    application.declare_queue(&queue, &[]).await;
    application.bind(&queue, &exchange, "#").await;
    let mut rig = Rig::up(sink(&broker, &json!({}))).await;
    assert_eq!(rig.deliver([message_from_row(0, &[&exchange, "k"])]).await, [Outcome::Delivered]);
    application.delete_exchange(&exchange).await;
    let is_guilty = |number: u64| number % 10 == 5;
    let address = |number| if is_guilty(number) { [exchange.as_str(), "k"] } else { ["", queue.as_str()] };
    let mut waiting: Vec<u64> = (1..100).collect();
    let mut rounds = 0;
    while !waiting.is_empty() {
        rounds += 1;
        assert!(rounds < 20, "the innocent get through: {waiting:?}");
        rig.wait_for_health(|health| *health == Health::Up).await;
        let outcomes = rig.deliver(waiting.iter().map(|number| message_from_row(*number, &address(*number)))).await;
        let mut again = Vec::new();
        for (number, outcome) in waiting.into_iter().zip(outcomes) {
            match outcome {
                Outcome::Rejected(trouble) if trouble.class == "exchange_missing" => assert!(is_guilty(number)),
                Outcome::Delivered => assert!(!is_guilty(number)),
                Outcome::Unavailable(_, Exposure::Innocent | Exposure::Unsent) => again.push(number),
                other => panic!("{number}: {other:?}"),
            }
        }
        waiting = again;
    }
    application.delete_queue(&queue).await;
    rig.finish().await;
}

#[tokio::test]
async fn a_queue_at_its_limit_refuses_and_the_others_flow() {
    let Some(broker) = Broker::shared() else { return };
    let application = broker.application().await;
    let (full, roomy) = (unique("full"), unique("roomy"));
    let limit =
        [("x-max-length", AMQPValue::LongInt(1)), ("x-overflow", AMQPValue::LongString("reject-publish".into()))];
    application.declare_queue(&full, &limit).await;
    application.declare_queue(&roomy, &[]).await;
    let mut rig = Rig::up(sink(&broker, &json!({}))).await;
    let key = |number| if number % 2 == 0 { full.as_str() } else { roomy.as_str() };
    let outcomes = rig.deliver((0..20).map(|number| message(number, &["", key(number)]))).await;
    for (number, outcome) in outcomes.iter().enumerate().skip(2) {
        let is_right = match outcome {
            Outcome::Delivered => number % 2 == 1,
            Outcome::Transient(trouble) => number % 2 == 0 && trouble.class == "nack",
            _ => false,
        };
        assert!(is_right, "{number}: {outcome:?}");
    }
    application.delete_queue(&full).await;
    application.delete_queue(&roomy).await;
    rig.finish().await;
}

#[tokio::test]
async fn a_sink_whose_inbox_closes_reports_everything_before_it_ends() {
    let Some(broker) = Broker::shared() else { return };
    let application = broker.application().await;
    let queue = unique("closing");
    application.declare_queue(&queue, &[]).await;
    let mut rig = Rig::up(sink(&broker, &json!({}))).await;
    rig.send((0..1_000).map(|number| message(number, &["", &queue]))).await;
    let outcomes = rig.finish().await;
    assert_eq!(outcomes.len(), 1_000);
    assert!(outcomes.values().all(|outcome| *outcome == Outcome::Delivered));
    application.delete_queue(&queue).await;
}

#[tokio::test]
async fn check_finds_missing_exchanges_and_queues_and_declares_nothing() {
    let Some(broker) = Broker::shared() else { return };
    let (exchange, queue) = (unique("missing"), unique("missing"));
    let sink = sink(&broker, &json!({}));
    for _ in 0..2 {
        let addresses =
            [["amq.topic", "k"], [&exchange, "k"], ["", &queue]].map(|address| message(0, &address).address);
        let findings = sink.check(&addresses).await;
        let bad: Vec<_> = findings.iter().map(|finding| (finding.point.as_str(), finding.is_bad())).collect();
        let (exchange, queue) = (format!("exchange {exchange}"), format!("queue {queue}"));
        let expected =
            [("sink rabbit", false), ("exchange amq.topic", false), (exchange.as_str(), true), (queue.as_str(), true)];
        assert_eq!(bad, expected, "{findings:?}");
    }
}
