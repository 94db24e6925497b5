//! One life: what happens is drawn from the seed, step by step.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::Seen;
use super::instance::Instance;
use super::oracle::Oracle;
use super::redis::Redis;
use super::store::{Store, Transaction};
use crate::command::{Action, Command};
use crate::queue::journal::begins_at;
use crate::queue::{Delivery, Position};

const STEPS: u32 = 600;
const PARTITIONS: u32 = 3;
const WORKERS: usize = 3;
const INSTANCES: usize = 2;
const TODOS: u64 = 7;
const LIMITS: [u32; 3] = [1, 3, 10];
const BATCH_MAX: u64 = 4;
const WEEK_US: i64 = 7 * 86_400 * 1_000_000;

/// A partition of Kafka, or an instance's journal: what was acknowledged, in order.
#[derive(Default)]
struct Log {
    commands: Vec<Command>,
    /// The position that is kept: behind what was applied, as far as that was committed.
    committed: Option<u64>,
    /// Who consumes it, as the group has it.
    owner: usize,
}

/// Consumes logs and applies what they have.
#[derive(Default)]
struct Worker {
    /// For each log that it believes to have: behind what it was given.
    positions: BTreeMap<u32, u64>,
    /// What it applies.
    batch: Option<Batch>,
    /// Behind what it has applied, and not committed.
    applied: BTreeMap<u32, u64>,
}

struct Batch {
    deliveries: Vec<Delivery>,
    behind: BTreeMap<u32, u64>,
    step: Step,
}

enum Step {
    /// It waits for its partitions.
    Waits,
    Began(Transaction),
    HasRead(Transaction),
}

pub(crate) struct World {
    random: fastrand::Rng,
    now_us: i64,
    /// Kafka, or a journal in each instance.
    has_kafka: bool,
    logs: Vec<Log>,
    workers: Vec<Worker>,
    instances: Vec<Instance>,
    store: Store,
    redis: Redis,
    oracle: Oracle,
    ids: u64,
    seen: Seen,
}

impl World {
    pub(crate) fn new(seed: u64) -> World {
        let mut random = fastrand::Rng::with_seed(seed);
        let has_kafka = random.u8(0..3) > 0;
        let (mut store, oracle, now_us) = (Store::default(), Oracle::new(), 100 * WEEK_US);
        let mut instance = || Instance::start(&mut store, &oracle, now_us);
        let instances = (0..INSTANCES).map(|_| instance()).collect();
        let (logs, workers) =
            if has_kafka { (PARTITIONS as usize, WORKERS) } else { (INSTANCES, INSTANCES) };
        let mut world = World {
            random,
            now_us,
            has_kafka,
            // A journal is its instance's.
            logs: (0..logs).map(|owner| Log { owner, ..Log::default() }).collect(),
            workers: (0..workers).map(|_| Worker::default()).collect(),
            instances,
            store,
            redis: Redis::default(),
            oracle,
            ids: 0,
            seen: Seen::new(),
        };
        (0..world.workers.len()).for_each(|worker| world.restart_worker(worker));
        world.rebalance();
        world
    }

    fn note(&mut self, event: &'static str) {
        *self.seen.entry(event).or_default() += 1;
    }

    /// Lives to its end. Answers what happened.
    pub(crate) fn live(mut self) -> Seen {
        for _ in 0..STEPS {
            self.now_us += self.random.i64(0..2_000_000);
            self.step();
        }
        self.rest();
        self.seen
    }

    fn step(&mut self) {
        let (worker, instance) =
            (self.random.usize(0..self.workers.len()), self.random.usize(0..INSTANCES));
        match self.random.u32(0..1000) {
            0..200 => self.ask(),
            200..500 => self.work(worker),
            500..530 => self.commit_positions(worker),
            530..640 => self.follow(instance),
            640..740 => {
                let limit = LIMITS[self.random.usize(0..LIMITS.len())];
                let event = self.instances[instance].read(limit, &self.oracle);
                event.into_iter().for_each(|event| self.note(event));
            }
            740..890 => self.talk(instance),
            890..905 => self.instances[instance].beat(),
            905..925 => self.connect(instance),
            925..945 => self.clean(),
            945..955 => {
                self.note("killed");
                self.restart_worker(worker);
            }
            955..970 => self.rebalance(),
            970..976 => {
                self.store.back_up();
                self.oracle.back_up();
            }
            976..980 => self.restore(),
            980..983 => self.store.restart(),
            983..990 => self.jump(),
            990..994 => {
                self.note("instance starts");
                self.instances[instance] =
                    Instance::start(&mut self.store, &self.oracle, self.now_us);
                if !self.has_kafka {
                    self.restart_worker(instance);
                }
            }
            994..997 => {
                self.note("redis restarts");
                self.redis.restart();
                (0..INSTANCES).for_each(|instance| self.disconnect(instance));
            }
            _ => self.forget_positions(),
        }
    }

    /// A client asks for a change, and is answered 202.
    fn ask(&mut self) {
        self.ids += 1;
        let number = self.random.u64(0..TODOS);
        let todo = Uuid::from_u128(u128::from(number) + (7 << 76));
        let action = match self.random.u8(0..5) {
            0 | 1 => Action::Create {
                title: format!("created by {}", self.ids),
                description: String::new(),
            },
            2 | 3 => Action::Update {
                title: Some(format!("changed by {}", self.ids)),
                description: None,
                completed: self.random.bool().then_some(true),
            },
            _ => Action::Delete,
        };
        // One in ten is somebody else.
        let user_id = if self.random.u8(0..10) == 0 { "another" } else { "owner" }.to_owned();
        let id = Uuid::from_u128(u128::from(self.ids) + (8 << 76));
        let command = Command { id, todo, user_id, requested_us: self.now_us, action };
        let log = if self.has_kafka {
            number as usize % self.logs.len()
        } else {
            // A client's requests about one todo go to one instance.
            number as usize % INSTANCES
        };
        self.oracle.acknowledge(&command);
        self.logs[log].commands.push(command);
        self.note("acknowledged");
    }

    fn source(&self, worker: usize) -> String {
        if self.has_kafka { "kafka/topic".to_owned() } else { format!("journal/{worker}") }
    }

    /// A worker goes on: it takes a batch, begins, reads, or commits.
    fn work(&mut self, worker: usize) {
        let source = self.source(worker);
        let Some(mut batch) = self.workers[worker].batch.take() else {
            self.workers[worker].batch = self.take(worker);
            return;
        };
        batch.step = match batch.step {
            Step::Waits => match self.store.begin(&source, &batch.deliveries) {
                Some(transaction) => Step::Began(transaction),
                None => {
                    self.note("waits");
                    Step::Waits
                }
            },
            Step::Began(mut transaction) => {
                self.store.read(&mut transaction, &source, &batch.deliveries);
                Step::HasRead(transaction)
            }
            Step::HasRead(transaction) => {
                if self.commit(worker, transaction, &batch.deliveries, &batch.behind) {
                    return;
                }
                // It does not know, and gives the same again.
                Step::Waits
            }
        };
        self.workers[worker].batch = Some(batch);
    }

    fn take(&mut self, worker: usize) -> Option<Batch> {
        let mut batch =
            Batch { deliveries: Vec::new(), behind: BTreeMap::new(), step: Step::Waits };
        let most = self.random.u64(1..=BATCH_MAX);
        for (log, next) in &mut self.workers[worker].positions {
            let commands = &self.logs[*log as usize].commands;
            let end = (*next + most).min(commands.len() as u64);
            for offset in *next..end {
                let partition = if self.has_kafka { *log } else { 0 };
                let position = Some(Position { partition, offset });
                let content = Ok(commands[offset as usize].clone());
                batch.deliveries.push(Delivery { position, content });
            }
            if *next < end {
                *next = end;
                batch.behind.insert(*log, end);
            }
        }
        (!batch.deliveries.is_empty()).then_some(batch)
    }

    /// Commits a batch. Whether the worker knows that it did.
    fn commit(
        &mut self,
        worker: usize,
        transaction: Transaction,
        deliveries: &[Delivery],
        behind: &BTreeMap<u32, u64>,
    ) -> bool {
        let (source, now_us) = (self.source(worker), self.now_us);
        let committed = self.store.commit(transaction, &source, deliveries, now_us);
        let Some(committed) = committed else { return false };
        let commands = deliveries.iter().filter_map(|delivery| delivery.content.as_ref().ok());
        self.oracle.committed(commands, &committed.fresh, self.store.todos(), self.store.count());
        if committed.repeated > 0 {
            self.note("repeated");
        }
        if self.random.u8(0..20) == 0 {
            self.note("unknown commit");
            return false;
        }
        if committed.has_changed && self.random.bool() && self.redis.advance(committed.revision).1 {
            self.push();
        }
        self.workers[worker].applied.extend(behind.clone());
        true
    }

    /// A worker says what it has applied; of a partition that it lost, nobody listens.
    fn commit_positions(&mut self, worker: usize) {
        for (log, next) in std::mem::take(&mut self.workers[worker].applied) {
            let log = &mut self.logs[log as usize];
            if log.owner == worker {
                log.committed = Some(next);
            }
        }
    }

    /// A worker restarts at the position that the queue has.
    fn restart_worker(&mut self, worker: usize) {
        let before = std::mem::take(&mut self.workers[worker]);
        if let Some(Batch { step: Step::Began(transaction) | Step::HasRead(transaction), .. }) =
            before.batch
        {
            self.store.roll_back(transaction);
        }
        let begins = |log: &Log| begins_at(None, log.committed.unwrap_or(0));
        let logs = self.logs.iter().enumerate().filter(|(_, log)| log.owner == worker);
        self.workers[worker].positions = logs.map(|(log, of)| (log as u32, begins(of))).collect();
    }

    /// The group gives partitions to other workers. One that loses some may not know it for a while.
    fn rebalance(&mut self) {
        if !self.has_kafka {
            return;
        }
        for log in 0..self.logs.len() {
            let owner = self.random.usize(0..self.workers.len());
            let before = std::mem::replace(&mut self.logs[log].owner, owner);
            if before != owner {
                if self.random.bool() {
                    self.workers[before].positions.remove(&(log as u32));
                } else {
                    self.note("zombie");
                }
            }
            let position = self.logs[log].committed.unwrap_or(0);
            // What it had applied before is never committed.
            let worker = &mut self.workers[owner];
            if before != owner || !worker.positions.contains_key(&(log as u32)) {
                worker.positions.insert(log as u32, position);
                worker.applied.remove(&(log as u32));
            }
        }
    }

    /// The cluster forgets the positions of a group that was stopped for long, or an operator resets them.
    fn forget_positions(&mut self) {
        if !self.has_kafka {
            return;
        }
        self.note("positions forgotten");
        self.logs.iter_mut().for_each(|log| log.committed = None);
        (0..self.workers.len()).for_each(|worker| self.restart_worker(worker));
    }

    fn follow(&mut self, instance: usize) {
        let of = &mut self.instances[instance];
        match of.follow(&mut self.store, &self.oracle, self.now_us) {
            Some(news) => self.note(news),
            None => of.look(&self.store),
        }
    }

    fn push(&mut self) {
        self.instances.iter_mut().for_each(Instance::pushed);
    }

    /// Something goes over an instance's connection to Redis.
    fn talk(&mut self, instance: usize) {
        let event = if self.random.bool() {
            let (is_news, event) = self.instances[instance].reaches(&mut self.redis);
            if is_news {
                self.push();
            }
            event
        } else {
            self.instances[instance].receives(&self.oracle)
        };
        event.into_iter().for_each(|event| self.note(event));
    }

    fn connect(&mut self, instance: usize) {
        if !self.instances[instance].is_connected() {
            self.instances[instance].connect();
        } else if self.random.u8(0..4) == 0 {
            self.disconnect(instance);
        }
    }

    fn disconnect(&mut self, instance: usize) {
        if self.instances[instance].disconnect(&self.oracle) {
            self.note("push lost");
        }
    }

    fn clean(&mut self) {
        let rows_max = self.random.usize(1..50);
        let (ids, versions) = self.store.clean(self.now_us, rows_max);
        if ids > 0 {
            self.note("ids removed");
        }
        if versions > 0 {
            self.note("history removed");
        }
    }

    fn restore(&mut self) {
        if self.store.restore() {
            self.note("restore");
            self.oracle.restore();
        }
    }

    /// The clock of all machines jumps.
    fn jump(&mut self) {
        let weeks = self.random.i64(1..5) * WEEK_US;
        if self.random.u8(0..3) > 0 {
            self.note("weeks on");
            self.now_us += weeks;
        } else {
            self.note("weeks back");
            self.now_us -= weeks.min(self.now_us);
        }
    }

    /// Nothing happens any more but what was begun: then everything acknowledged is applied, and shown.
    fn rest(&mut self) {
        for log in 0..self.logs.len() {
            let owner = self.logs[log].owner;
            self.workers.iter_mut().enumerate().filter(|(of, _)| *of != owner).for_each(
                |(_, of)| {
                    of.positions.remove(&(log as u32));
                },
            );
        }
        let mut quiet = 0;
        for _ in 0..100_000 {
            let is_done = self.workers.iter().all(|worker| worker.batch.is_none());
            quiet = if is_done { quiet + 1 } else { 0 };
            if quiet > 200 {
                break;
            }
            let worker = self.random.usize(0..self.workers.len());
            self.work(worker);
        }
        assert!(quiet > 200, "workers never finish");
        self.oracle.check_rest();
        for instance in 0..INSTANCES {
            if !self.instances[instance].is_connected() {
                self.instances[instance].connect();
            }
        }
        // Twice: what one instance announces to Redis, the other receives, and looks again.
        for _ in 0..3 {
            for instance in 0..INSTANCES {
                self.instances[instance].beat();
                (0..4).for_each(|_| self.follow(instance));
                self.instances[instance].beat();
                self.settle();
            }
        }
        for instance in 0..INSTANCES {
            for limit in LIMITS {
                // From wherever it comes, and then from the near cache.
                for _ in 0..2 {
                    assert_eq!(self.instances[instance].reported(), self.oracle.state());
                    self.instances[instance].read(limit, &self.oracle);
                    self.settle();
                }
            }
        }
    }

    fn settle(&mut self) {
        for _ in 0..200 {
            for instance in 0..INSTANCES {
                if self.instances[instance].reaches(&mut self.redis).0 {
                    self.push();
                }
                self.instances[instance].receives(&self.oracle);
            }
        }
    }
}
