//! How long may the queue be?
//!
//! What is aimed at is the target times a factor that follows what comes of it:
//!
//! * it shrinks quickly for clients whose deadline is shorter than the target, and while the queue
//!   itself turns requests away, unless that costs less than cores with nothing to do;
//! * it grows while the queue runs empty though the limit keeps people out, the faster the longer the
//!   cores are idle for it: that is how requests of very different cost show, for which the mean wait
//!   says little;
//! * it returns to [`USUAL`] otherwise, slowly.
//!
//! Invariant: [`LEAST`] ≤ factor ≤ [`MOST`].

use super::knee::Look;

/// What is aimed at by default: somewhat less than the target, beyond which a queue may refuse.
const USUAL: f64 = 0.75;
const LEAST: f64 = 0.05;
const MOST: f64 = 8.0;

/// The share of answers that may be late, and the one below which all is well.
pub(super) const LATE_MAX: f64 = 0.10;
pub(super) const LATE_FEW: f64 = 0.02;

/// Per sample: if too many are late, if some are, if a queue stands for nothing, and if all is well.
const IF_LATE: f64 = 0.7;
const IF_FEW_LATE: f64 = 0.9;
const IF_STANDING: f64 = 0.97;
const IF_WELL: f64 = 1.05;

/// And if more than the usual is aimed at, and nothing shows that it is needed.
const IF_NEEDLESS: f64 = 0.99;

/// Growth per part of a sample that cores were idle while people were kept out, and at most.
const IF_IDLE: f64 = 3.0;
const IF_IDLE_MAX: f64 = 1.5;

/// Idle less than this, a server is as good as busy. Smoothed, with this weight of the newest sample.
const IDLE_FEW: f64 = 0.01;
const IDLE_WEIGHT: f64 = 0.1;

/// The part of the cores' time that may go into dropping requests for that, however idle they are.
const WASTE_MOST: f64 = 0.03;

/// Where it was when too many were late it does not go again soon: it stays below that part of it,
/// which grows by this much per sample.
const EDGE: f64 = 0.8;
const FORGET: f64 = 1.003;

/// A drop of the limit by more than this is given time to show before lateness counts again.
const DROP: f64 = 0.8;

#[derive(Clone, Debug)]
pub(super) struct Slack {
    /// In seconds.
    target: f64,
    factor: f64,
    factor_max: f64,
    /// The part of the time that the cores had nothing to do while people were kept out, smoothed.
    idle: f64,
    /// Until those who came in under a higher limit have gone, in seconds.
    settling: f64,
}

impl Slack {
    /// Around `target`, in seconds.
    pub(super) fn new(target: f64) -> Self {
        Slack {
            target: target.max(1e-6),
            factor: USUAL,
            factor_max: MOST,
            idle: 0.0,
            settling: 0.0,
        }
    }

    /// The wait to aim at, in seconds.
    pub(super) fn aim(&self) -> f64 {
        self.target * self.factor
    }

    /// The wait that is too long: the target, or less for impatient clients.
    pub(super) fn bound(&self) -> f64 {
        self.target * (self.factor / USUAL).min(1.0)
    }

    /// The limit changed from `before` to `after`, after `look`.
    pub(super) fn on_limit(&mut self, look: &Look, before: f64, after: f64) {
        let reached = before.min(look.in_flight_max.max(1.0));
        if after < reached * DROP {
            self.settling = (look.wait + look.service).min(5.0);
        }
    }

    /// Whether what is late now came in under the limit of now. Call once per look.
    pub(super) fn has_settled(&mut self, look: &Look) -> bool {
        let settled = self.settling <= 0.0;
        self.settling -= look.seconds;
        settled
    }

    /// Takes in what came of it.
    pub(super) fn adapt(&mut self, look: &Look) {
        self.factor_max = (self.factor_max * FORGET).min(MOST);
        if !self.has_settled(look) {
            return;
        }
        let ran_empty = look.is_felt && look.wait_min < self.target / 2.0;
        let idle = if ran_empty { look.idle } else { 0.0 };
        self.idle += (idle - self.idle) * IDLE_WEIGHT;
        let is_standing = look.wait_min > self.target && self.idle < IDLE_FEW;
        // Some drops cost less than it would to let the cores run dry.
        let too_late = match look.wasted > self.idle.min(WASTE_MOST) {
            true => look.late_share,
            false => look.late_share_answered,
        };
        let if_idle = (1.0 + IF_IDLE * (idle - IDLE_FEW).max(0.0)).min(IF_IDLE_MAX);
        self.factor_max = (self.factor_max * if_idle).min(MOST);
        let factor = if too_late > LATE_MAX {
            self.factor_max = (self.factor * EDGE).max(LEAST);
            IF_LATE
        } else if too_late > LATE_FEW {
            IF_FEW_LATE
        } else if self.factor < USUAL {
            if_idle.max(IF_WELL)
        } else if is_standing && self.factor > USUAL {
            IF_STANDING
        } else if if_idle > 1.0 || self.factor < USUAL / IF_NEEDLESS {
            if_idle
        } else {
            IF_NEEDLESS
        };
        self.factor = (self.factor * factor).clamp(LEAST, self.factor_max);
    }
}
