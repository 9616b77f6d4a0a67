//! How fast the sink is beside a bare publisher with the same properties. Run alone, with optimization:
//! `cargo test --release --test rabbitmq -- --ignored --nocapture speed`

use std::time::Duration;

use futures_util::{StreamExt, stream};
use lapin::{
    BasicProperties, Confirmation, Connection, ConnectionProperties,
    options::{BasicPublishOptions, ConfirmSelectOptions},
    types::{AMQPValue, FieldTable},
};
use outbill::decision::Outcome;
use serde_json::json;
use tokio::time::Instant;

use crate::{
    sink,
    support::{
        brokers::{Broker, unique},
        sinks::{Rig, message},
    },
};

const MESSAGES: u64 = 50_000;
const IN_FLIGHT: usize = 1_000;
const BODY: [u8; 512] = [b'1'; 512];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures, and needs a machine of its own"]
async fn the_sink_is_nearly_as_fast_as_a_bare_publisher() {
    let Some(broker) = Broker::shared() else { return };
    let mut ratios = Vec::new();
    for round in 0..5 {
        let bare = per_second(bare(&broker).await);
        let ours = per_second(ours(&broker).await);
        println!("round {round}: bare {bare:.0}/s, sink {ours:.0}/s, ratio {:.2}", ours / bare);
        ratios.push(ours / bare);
    }
    ratios.sort_by(f64::total_cmp);
    assert!(ratios[2] >= 0.8, "{ratios:?}");
}

fn per_second(took: Duration) -> f64 {
    f64::from(u32::try_from(MESSAGES).unwrap()) / took.as_secs_f64()
}

async fn ours(broker: &Broker) -> Duration {
    let application = broker.application().await;
    let queue = unique("speed");
    application.declare_queue(&queue, &[]).await;
    let mut rig = Rig::up(sink(broker, &json!({}))).await;
    let body = bytes::Bytes::from_static(&BODY);
    let next = |number| {
        let mut message = message(number, &["", &queue]);
        message.body = body.clone();
        message
    };
    let start = Instant::now();
    let mut numbers = 0..MESSAGES;
    let mut under_way = rig.send(numbers.by_ref().take(IN_FLIGHT).map(next)).await.len();
    while under_way > 0 {
        let outcomes = rig.some_outcomes().await;
        assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Delivered), "{outcomes:?}");
        under_way -= outcomes.len();
        under_way += rig.send(numbers.by_ref().take(outcomes.len()).map(next)).await.len();
    }
    let took = start.elapsed();
    application.delete_queue(&queue).await;
    rig.finish().await;
    took
}

async fn bare(broker: &Broker) -> Duration {
    let application = broker.application().await;
    let queue = unique("bare");
    application.declare_queue(&queue, &[]).await;
    let connection = Connection::connect(&broker.url, ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
    let start = Instant::now();
    let (channel, queue) = (&channel, queue.as_str());
    let publish = |number: u64| async move {
        let mut headers = FieldTable::default();
        headers.insert("outbill-attempt".into(), AMQPValue::LongLongInt(1));
        headers.insert("outbill-id".into(), AMQPValue::LongString(number.to_string().into()));
        let properties = BasicProperties::default()
            .with_content_type("application/json".into())
            .with_headers(headers)
            .with_delivery_mode(2)
            .with_message_id(format!("order.paid:{number}").into())
            .with_type("order.paid".into())
            .with_timestamp(1_700_000_000)
            .with_app_id("outbill".into());
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let sent = channel.basic_publish("".into(), queue.into(), options, &BODY, properties).await.unwrap();
        assert!(matches!(sent.await.unwrap(), Confirmation::Ack(None)));
    };
    stream::iter(0..MESSAGES).map(publish).buffer_unordered(IN_FLIGHT).collect::<()>().await;
    let took = start.elapsed();
    application.delete_queue(queue).await;
    took
}
