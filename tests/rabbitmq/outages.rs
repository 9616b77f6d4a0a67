//! Brokers that go away, ask us to wait, fall silent, or do not let us in.

use std::time::Duration;

use outbill::{
    decision::{Exposure, Outcome},
    sink::{Health, Sink},
};
use serde_json::json;
use tokio::net::TcpListener;

use crate::{
    sink, sink_of,
    support::{
        brokers::{Broker, unique},
        proxy::Proxy,
        sinks::{Rig, class, message, message_from_row},
    },
};

fn is_down(health: &Health, class: &str) -> bool {
    matches!(health, Health::Down(trouble) if trouble.class == class)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_memory_alarm_blocks_the_sink_and_costs_no_message() {
    let Some(broker) = Broker::private(&[], |_| {}) else { return };
    let application = broker.application().await;
    let queue = unique("alarm");
    application.declare_queue(&queue, &[]).await;
    // The alarm lasts longer than a heartbeat may be missed, and than a confirmation may take.
    let mut rig = Rig::up(sink(&broker, &json!({ "confirm_timeout": "2s", "heartbeat": "1s" }))).await;
    assert_eq!(rig.deliver([message(0, &["", &queue])]).await, [Outcome::Delivered]);
    broker.ctl(&["set_vm_memory_high_watermark", "0.0000001"]);
    // The broker notices by the first message, which it leaves unconfirmed.
    let stuck = rig.send([message(1, &["", &queue])]).await;
    rig.wait_for_health(|health| matches!(health, Health::Blocked(_))).await;
    let refused = rig.deliver([message(2, &["", &queue])]).await;
    assert!(matches!(&refused[0], Outcome::Unavailable(trouble, Exposure::Unsent) if trouble.class == "blocked"));
    let calm = rig.is_silent_for(Duration::from_secs(6)).await;
    assert!(calm, "a blocked broker's messages stay under way, and the connection stays");
    broker.ctl(&["set_vm_memory_high_watermark", "0.4"]);
    rig.wait_for_health(|health| *health == Health::Up).await;
    assert_eq!(rig.outcomes(1).await.remove(&stuck[0]), Some(Outcome::Delivered));
    assert_eq!(rig.deliver([message(3, &["", &queue])]).await, [Outcome::Delivered]);
    assert_eq!(application.drain(&queue).await.len(), 3);
    rig.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_broker_is_found_again_and_what_was_under_way_is_told() {
    let Some(broker) = Broker::private(&[], |_| {}) else { return };
    let queue = unique("killed");
    broker.application().await.declare_queue(&queue, &[]).await;
    let mut rig = Rig::up(sink(&broker, &json!({}))).await;
    let sent = rig.send((0..1_000).map(|number| message(number, &["", &queue]))).await;
    broker.kill();
    rig.wait_for_health(|health| matches!(health, Health::Down(_))).await;
    for outcome in rig.outcomes(sent.len()).await.values() {
        let is_right = matches!(outcome, Outcome::Delivered)
            || matches!(outcome, Outcome::Unavailable(trouble, _) if trouble.class == "connection_lost");
        assert!(is_right, "{outcome:?}");
    }
    let away = rig.deliver([message(1_000, &["", &queue])]).await;
    assert!(matches!(&away[0], Outcome::Unavailable(_, Exposure::Unsent)), "{away:?}");
    broker.start_again();
    rig.wait_for_health(|health| *health == Health::Up).await;
    // A broker that is killed may forget a queue that was declared a moment before.
    broker.application().await.declare_queue(&queue, &[]).await;
    assert_eq!(rig.deliver([message(1_001, &["", &queue])]).await, [Outcome::Delivered]);
    rig.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_is_not_confirmed_in_time_is_transient_and_the_channel_lives_on() {
    let Some(broker) = Broker::shared() else { return };
    let application = broker.application().await;
    let queue = unique("silent");
    application.declare_queue(&queue, &[]).await;
    let (host, port) = broker.host_and_port();
    let proxy = Proxy::start(&host, port).await;
    let url = format!("amqp://guest:guest@127.0.0.1:{}", proxy.port());
    let settings = json!({ "url": url, "confirm_timeout": "500ms", "heartbeat": "20s" });
    let mut rig = Rig::up(sink_of(&settings)).await;
    assert_eq!(rig.deliver([message(0, &["", &queue])]).await, [Outcome::Delivered]);
    proxy.stall(true);
    let late = rig.deliver([message(1, &["", &queue]), message(2, &["", &unique("nowhere")])]).await;
    assert_eq!(late.iter().map(class).collect::<Vec<_>>(), ["confirm_timeout"; 2], "{late:?}");
    assert!(late.iter().all(|outcome| matches!(outcome, Outcome::Transient(_))));
    proxy.stall(false);
    // Their late confirmations, and the late return, are nobody else's.
    let mut again = message(2, &["", &queue]);
    again.attempt = 2;
    assert_eq!(rig.deliver([again, message(3, &["", &queue])]).await, [Outcome::Delivered, Outcome::Delivered]);
    assert_eq!(application.drain(&queue).await, ["order.paid:0", "order.paid:1", "order.paid:2", "order.paid:3"]);
    application.delete_queue(&queue).await;
    rig.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_peer_costs_neither_memory_nor_threads_however_often_it_is_tried() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("amqp://guest:guest@{}", listener.local_addr().unwrap());
    let mut rig = Rig::start(sink_of(&json!({ "url": url, "connect_timeout": "100ms" })));
    let mut accepted = Vec::new();
    for _ in 0..5 {
        accepted.push(listener.accept().await.unwrap());
    }
    rig.wait_for_health(|health| is_down(health, "connect_timeout")).await;
    // Each attempt's socket is cut, so that the client library's thread for it ends.
    for (stream, _) in &mut accepted[..4] {
        let mut bytes = Vec::new();
        let read = tokio::io::AsyncReadExt::read_to_end(stream, &mut bytes);
        drop(tokio::time::timeout(Duration::from_secs(10), read).await.expect("the socket is closed"));
    }
    rig.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_credentials_are_told_and_a_mended_password_file_is_read_again() {
    let Some(broker) = Broker::private(&[], |_| {}) else { return };
    let (host, port) = broker.host_and_port();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, "hunter2").unwrap();
    let odd = "p@ss:w/rd?#%25 é";
    broker.ctl(&["add_user", "shop", odd]);
    broker.ctl(&["set_permissions", "shop", "", ".*", ".*"]);
    let settings = json!({ "host": host, "port": port, "user": "shop", "password_file": file });
    let mut rig = Rig::start(sink_of(&settings));
    let health = rig.wait_for_health(|health| is_down(health, "credentials_refused")).await;
    assert!(!format!("{health:?}").contains("hunter2"), "{health:?}");
    std::fs::write(&file, format!("{odd}\n")).unwrap();
    rig.wait_for_health(|health| *health == Health::Up).await;
    rig.finish().await;

    for (vhost, class) in [("nope", "vhost_missing"), ("other", "vhost_refused")] {
        if vhost == "other" {
            broker.ctl(&["add_vhost", vhost]);
        }
        let settings = json!({ "host": host, "port": port, "user": "shop", "password": odd, "vhost": vhost });
        let mut rig = Rig::start(sink_of(&settings));
        rig.wait_for_health(|health| is_down(health, class)).await;
        rig.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exchange_that_may_not_be_written_and_a_message_over_the_brokers_limit_charge_only_their_own() {
    let Some(broker) = Broker::private(&["max_message_size = 100000"], |_| {}) else { return };
    let application = broker.application().await;
    let (closed, queue) = (unique("closed"), unique("open"));
    application.declare_exchange(&closed).await;
    application.declare_queue(&queue, &[]).await;
    broker.ctl(&["add_user", "shop", "shop"]);
    broker.ctl(&["set_permissions", "shop", "", "^(amq.default)?$", ".*"]);
    let (host, port) = broker.host_and_port();
    let mut rig = Rig::up(sink_of(&json!({ "host": host, "port": port, "user": "shop", "password": "shop" }))).await;
    let make = |number: u64| {
        let mut message = message_from_row(number, if number == 7 { [&closed, "k"] } else { ["", &queue] }.as_slice());
        if number == 13 {
            message.body = vec![b'1'; 100_001].into();
        }
        message
    };
    let mut waiting: Vec<u64> = (0..20).collect();
    let mut rounds = 0;
    while !waiting.is_empty() {
        rounds += 1;
        assert!(rounds < 20, "the innocent get through: {waiting:?}");
        rig.wait_for_health(|health| *health == Health::Up).await;
        let outcomes = rig.deliver(waiting.iter().map(|number| make(*number))).await;
        let mut again = Vec::new();
        for (number, outcome) in waiting.into_iter().zip(outcomes) {
            match (number, outcome) {
                (7, Outcome::Rejected(trouble)) => assert_eq!(trouble.class, "exchange_refused", "{trouble:?}"),
                (13, Outcome::Rejected(trouble)) => assert_eq!(trouble.class, "too_large", "{trouble:?}"),
                (number, Outcome::Delivered) => assert!(number != 7 && number != 13),
                (_, Outcome::Unavailable(_, Exposure::Innocent | Exposure::Unsent)) => again.push(number),
                other => panic!("{other:?}"),
            }
        }
        waiting = again;
    }
    rig.finish().await;
}

#[tokio::test]
async fn check_names_what_keeps_it_from_connecting() {
    let Some(broker) = Broker::shared() else { return };
    let (host, port) = broker.host_and_port();
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    for (settings, part) in [
        (json!({ "url": format!("amqp://guest:hunter2@{host}:{port}") }), "refuses user \"guest\""),
        (json!({ "url": format!("amqp://{host}:{port}/nope") }), "has no vhost \"nope\""),
        (json!({ "url": format!("amqp://127.0.0.1:{closed}") }), "cannot connect to 127.0.0.1"),
        (json!({ "url": "amqp://nowhere.invalid" }), "cannot resolve nowhere.invalid"),
        (json!({ "url": format!("amqps://{host}:{port}") }), "does not answer with TLS"),
    ] {
        let findings = sink_of(&settings).check(&[]).await;
        let shown = format!("{findings:?}");
        assert!(findings.len() == 1 && findings[0].is_bad() && shown.contains(&part.replace('"', "\\\"")), "{shown}");
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
