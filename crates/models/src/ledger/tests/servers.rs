//! Tests of several servers that share one limit.

use super::*;

#[tokio::test]
async fn two_servers_use_up_one_limit_together() {
    let place = Place::new();
    let money = limit(LimitMeasure::Cost, 1000);
    let one = place.open_with(place.settings("one")).await;
    let two = place.open_with(place.settings("two")).await;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..60 {
        let ledger = if number % 2 == 0 { one.clone() } else { two.clone() };
        let money = money.clone();
        tasks.spawn(async move {
            let mut served = 0;
            for _ in 0..20 {
                match reserve(&ledger, &money, 10).await {
                    Ok(reservation) => {
                        tokio::task::yield_now().await;
                        reservation.settle(&call(1));
                        served += 1;
                    }
                    Err(error) => assert!(matches!(error, Refused::OverLimit(_)), "{error}"),
                }
            }
            served
        });
    }
    let served: i64 = tasks.join_all().await.into_iter().sum();
    // No call was refused while enough was left and nothing was in flight.
    assert!(served > 990, "{served}");
    one.close().await;
    two.close().await;
    assert_eq!((place.books.used(), place.books.held()), (served, 0));
}

#[tokio::test]
async fn one_server_gets_what_another_does_not_need() {
    let place = Place::new();
    let money = limit(LimitMeasure::Cost, 1000);
    let one = place.open_with(place.settings("one")).await;
    let two = place.open_with(place.settings("two")).await;
    reserve(&one, &money, 900).await.unwrap().settle(&call(1));
    reserve(&two, &money, 999).await.unwrap().settle(&call(999));
    over(reserve(&one, &money, 1).await);
    // Also for tokens, where the call that crosses the limit must get all that is left.
    let tokens = limit(LimitMeasure::TotalTokens, 1000);
    reserve(&one, &tokens, 900).await.unwrap().settle(&call(1));
    reserve(&two, &tokens, 5000).await.unwrap().settle(&call(5000));
    over(reserve(&one, &tokens, 1).await);
}
