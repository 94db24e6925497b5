//! Whose requests are begun while a queue stands or grows, where clients have shares.

use super::*;

/// Purpose: while the queue stands, each address gets its share: of many requests of one the newest are refused at once, and
/// those of others are begun before its other ones, whenever they come.
#[test]
fn each_address_has_its_share() {
    let mut stage = Stage::fair();
    stage.overload();
    let busy: Vec<usize> = (0..40).map(|n| stage.ask_from(1, &format!("/do/busy-{n}"))).collect();
    stage.turn_after(1);
    let (one, other) = (stage.ask_from(2, "/do/one"), stage.ask_from(3, "/do/other"));
    stage.turn_after(1);
    stage.turn_after(1);
    stage.turn_after(1);
    stage.turn_after(15);
    let begun = stage.begun();
    assert!(begun[..begun.len().min(4)].contains(&"one".to_owned()), "{begun:?}");
    stage.settle();
    let begun: Vec<String> = begun.into_iter().chain(stage.begun()).collect();
    assert!(begun.contains(&"other".to_owned()), "{begun:?}");
    assert_eq!([one, other].map(|link| stage.status(link)), [Some(200), Some(200)]);
    let statuses: Vec<u16> = busy.iter().filter_map(|&link| stage.status(link)).collect();
    assert_eq!(statuses.len(), 40, "every request is answered");
    let served = statuses.iter().filter(|&&status| status == 200).count();
    assert!((1..=12).contains(&served), "{served}: about as many as fit into the target");
    assert_eq!(stage.metrics.queue.overflow.get(), 0);
}

/// Purpose: in a queue that neither stands nor grows no client has a share.
#[test]
fn without_a_standing_queue_nobody_has_a_share() {
    let mut stage = Stage::fair();
    let names: Vec<String> = (0..30).map(|n| format!("busy-{n}")).collect();
    for name in &names {
        stage.ask_from(1, &format!("/do/{name}"));
    }
    stage.turn_after(1);
    stage.ask_from(2, "/do/one");
    stage.settle();
    let mut expected = names;
    expected.push("one".to_owned());
    assert_eq!(stage.begun(), expected, "in order");
}

/// Purpose: a queue that grows and does not stand yet is in the order of shares, too: a client that asks for little is served
/// soon beside an address that asks for twice the capacity. Nothing is refused, and once the growth is over, the oldest are
/// begun first again.
#[test]
fn a_queue_that_grows_is_divided() {
    let mut stage = Stage::fair();
    let (mut links, mut waits, mut asked) = (Vec::new(), Vec::new(), 0);
    for turn in 0..280_u32 {
        if turn % 10 == 0 {
            links.push(stage.ask_from(2, &format!("/do/{turn}")));
            asked += u32::from(turn >= 150);
        }
        for _ in 0..2 {
            links.push(stage.ask_from(1, &format!("/do/{}", 1000 + turn)));
        }
        stage.turn_after(1);
        assert!(!stage.worker.queue_stands(), "turn {turn}");
        let begun = stage.begun().into_iter().filter_map(|name| name.parse::<u32>().ok());
        waits.extend(begun.filter(|&at| (150..1000).contains(&at)).map(|at| turn - at));
    }
    assert!(waits.len() as u32 >= asked - 1, "{waits:?} of {asked}");
    assert!(waits.iter().all(|&wait| wait <= 3), "{waits:?}");
    (0..150).for_each(|_| stage.turn_after(1));
    stage.begun();
    links.push(stage.ask_from(2, "/do/1999"));
    (0..300).for_each(|_| stage.turn_after(1));
    let begun: Vec<u32> = stage.begun().iter().filter_map(|name| name.parse().ok()).collect();
    assert!(begun.is_sorted() && begun.ends_with(&[1999]), "{begun:?}");
    stage.settle();
    assert!(links.iter().all(|&link| stage.status(link) == Some(200)), "nothing is refused");
}

/// Purpose: the clients that the application names have shares, though all come from one address; who is not named, is by
/// its address. Where naming panics, that request is answered 500 without being begun, and nothing else happens.
#[test]
fn each_client_of_the_application_has_its_share() {
    let mut stage = Stage::fair_by_name();
    stage.overload();
    let busy: Vec<usize> = (0..40).map(|n| stage.ask(&format!("/do/busy-{n}"))).collect();
    stage.turn_after(1);
    let [one, other, panic] = ["one-0", "other-0", "panic-0"].map(|name| format!("/do/{name}"));
    let [one, other, panic] = [one, other, panic].map(|path| stage.ask(&path));
    let unnamed = stage.ask_from(7, "/do/unnamed");
    (0..8).for_each(|_| stage.turn_after(1));
    stage.turn_after(15);
    stage.settle();
    let begun = stage.begun();
    assert!(!begun.contains(&"panic-0".to_owned()), "{begun:?}");
    let statuses = [one, other, unnamed, panic].map(|link| stage.status(link));
    assert_eq!(statuses, [Some(200), Some(200), Some(200), Some(500)]);
    let statuses: Vec<u16> = busy.iter().filter_map(|&link| stage.status(link)).collect();
    assert_eq!(statuses.len(), 40, "every request is answered");
    let served = statuses.iter().filter(|&&status| status == 200).count();
    assert!((1..40).contains(&served), "{served}");
}

/// Purpose: requests that found no room in the queue when it began to stand are no load while they wait to be refused: else
/// nobody would be admitted until all of them are. Each of them is answered.
#[test]
fn what_will_be_refused_holds_no_place() {
    let mut stage = Stage::fair();
    let mut links = Vec::new();
    while !stage.worker.queue_stands() {
        assert!(links.len() < 5000, "it never stands");
        links.extend((0..6).map(|n| stage.ask_from(1, &format!("/do/{n}"))));
        stage.metrics.take_load_max();
        stage.turn_after(1);
    }
    let waiting = |stage: &Stage| stage.metrics.queue.waiting.get();
    let (load, most) = (stage.metrics.take_load_max(), waiting(&stage));
    assert!(most > 500 && u64::from(load) >= most, "{load} of {most}");
    (0..3).for_each(|_| stage.turn_after(0));
    stage.metrics.take_load_max();
    stage.turn_after(0);
    let (load, waits) = (stage.metrics.take_load_max(), waiting(&stage));
    assert!(waits > most / 2 && u64::from(load) < waits / 2, "{load} of {waits}");
    stage.turn_after(15);
    stage.settle();
    let statuses: Vec<u16> = links.iter().filter_map(|&link| stage.status(link)).collect();
    assert_eq!(statuses.len(), links.len(), "every request is answered");
    stage.metrics.take_load_max();
    assert_eq!(stage.metrics.take_load_max(), 0, "nothing is counted any more");
}
