//! Which message a return belongs to, many in flight together.

use outbill::decision::Outcome;
use serde_json::json;

use crate::{
    sink,
    support::{
        brokers::{Broker, unique},
        sinks::{Rig, class, message},
    },
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_50_in_flight_only_the_unroutable_one_is_rejected_in_each_of_200_rounds() {
    let Some(broker) = Broker::shared() else { return };
    let application = broker.application().await;
    let (queue, nowhere) = (unique("returns"), unique("nowhere"));
    application.declare_queue(&queue, &[]).await;
    let mut rig = Rig::up(sink(&broker, &json!({}))).await;
    for round in 0..200 {
        let wrong = round * 7 % 50;
        let key = |place: u64| if place == wrong { nowhere.as_str() } else { queue.as_str() };
        let outcomes = rig.deliver((0..50).map(|place| message(round * 50 + place, &["", key(place)]))).await;
        for (place, outcome) in (0..).zip(&outcomes) {
            let expected = if place == wrong { "unroutable" } else { "delivered" };
            assert_eq!(class(outcome), expected, "round {round}, place {place}: {outcome:?}");
        }
    }
    assert_eq!(application.drain(&queue).await.len(), 200 * 49);
    application.delete_queue(&queue).await;
    rig.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_mixture_of_routable_and_unroutable_messages_is_told_apart() {
    let Some(broker) = Broker::shared() else { return };
    let application = broker.application().await;
    let (queue, nowhere) = (unique("mixture"), unique("nowhere"));
    application.declare_queue(&queue, &[]).await;
    let mut rig = Rig::up(sink(&broker, &json!({}))).await;
    for (round, share) in [1, 2, 3, 7, 1, 2, 3, 7, 1, 2].into_iter().enumerate() {
        let base = u64::try_from(round).unwrap() * 1_000;
        let is_lost = |number: u64| number.wrapping_mul(2_654_435_761).is_multiple_of(share);
        let key = |number| if is_lost(number) { nowhere.as_str() } else { queue.as_str() };
        let outcomes = rig.deliver((base..base + 1_000).map(|number| message(number, &["", key(number)]))).await;
        for (number, outcome) in (base..).zip(&outcomes) {
            let expected = if is_lost(number) { "unroutable" } else { "delivered" };
            assert_eq!(class(outcome), expected, "number {number}: {outcome:?}");
        }
    }
    application.delete_queue(&queue).await;
    rig.finish().await;
}

#[tokio::test]
async fn two_bills_with_one_message_id_in_flight_are_told_apart() {
    let Some(broker) = Broker::shared() else { return };
    let application = broker.application().await;
    let (queue, nowhere) = (unique("twins"), unique("nowhere"));
    application.declare_queue(&queue, &[]).await;
    let mut rig = Rig::up(sink(&broker, &json!({}))).await;
    for round in 0..50 {
        let twins = [(2 * round, queue.as_str()), (2 * round + 1, nowhere.as_str())].map(|(number, key)| {
            let mut twin = message(number, &["", key]);
            twin.message_id = "the same".into();
            twin
        });
        let outcomes = rig.deliver(twins).await;
        assert_eq!(outcomes.iter().map(class).collect::<Vec<_>>(), ["delivered", "unroutable"], "{outcomes:?}");
    }
    application.delete_queue(&queue).await;
    rig.finish().await;
}

#[tokio::test]
async fn the_error_of_an_unroutable_message_says_where_it_was_to_go() {
    let Some(broker) = Broker::shared() else { return };
    let nowhere = unique("nowhere");
    let mut rig = Rig::up(sink(&broker, &json!({}))).await;
    let outcomes = rig.deliver([message(1, &["amq.topic", &nowhere])]).await;
    let [Outcome::Rejected(trouble)] = outcomes.as_slice() else { panic!("{outcomes:?}") };
    let expected = format!("the broker returned it: 312 NO_ROUTE (exchange \"amq.topic\", routing key {nowhere:?})");
    assert_eq!(trouble.error, expected);
    rig.finish().await;
}
