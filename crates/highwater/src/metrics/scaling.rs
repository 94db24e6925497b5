//! The signals for autoscalers: how much work is offered, and should the server be scaled out?
//!
//! The admission module computes the figures. It is above this module, so [`Scaling`] is the form
//! in which they arrive, for the page and for `GET /scaling`.
//!
//! It never computes the figures itself.

use std::fmt::Write;

/// The signals of one server for autoscalers, operators and alerts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Signals {
    /// Work offered over work that can be done, smoothed, counting every attempt. Not capped at 1.
    pub demand_ratio: f64,
    /// The same, assuming that refused clients try again, so that a part of the attempts is no
    /// additional demand.
    pub demand_ratio_min: f64,
    /// Whether demand has exceeded this server's capacity, and it has not been calm since.
    pub needs_scaleout: bool,
    /// How long `demand_ratio` has been below 0.9, where a server can stay, in seconds; 0 while it is not.
    /// Reset when `needs_scaleout` rises.
    pub calm_seconds: f64,
    /// How much of the scarcest resource is used, the workers' time or the places under the limit,
    /// 0 to 1.
    pub saturation_ratio: f64,
    /// How many more connections with work the limit allows.
    pub headroom: u32,
    /// Refusals per second, over the last second.
    pub rejection_rate: f64,
}

/// The state of admission at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Scaling {
    /// The signals.
    pub(crate) signals: Signals,
    /// The limit, in connections.
    pub(crate) limit: u32,
    /// The present load, in connections.
    pub(crate) in_flight: u32,
    /// Connections that the kernel's gate answered with a reset.
    pub(crate) reset: u64,
    /// Attempts to connect that the kernel's gate did not answer.
    pub(crate) dropped: u64,
    /// Attempts to connect that found the listener's backlog full, which is short while the limit
    /// is reached.
    pub(crate) overflowed: u64,
    /// CPU time that refusing has cost, in seconds.
    pub(crate) shed_cpu_seconds: f64,
    /// Whether requests are refused during an overload, and no connections.
    pub(crate) refuses_requests: bool,
    /// Connections that the kernel refused because their source had had its share.
    pub(crate) refused_for_share: u64,
}

impl Scaling {
    /// Refusals before a connection existed.
    pub(crate) fn refused_connections(&self) -> u64 {
        self.reset + self.dropped + self.overflowed
    }

    /// A JSON object of numbers, one level deep, whose keys are a contract with autoscalers.
    pub(super) fn json(&self, total_rejections: u64, requests_per_second: f64) -> String {
        let signals = &self.signals;
        let mut json = String::from("{");
        let mut member = |name: &str, value: f64| {
            // JSON has no infinity and no NaN. Neither occurs, and zero would be the harmless
            // value.
            let value = if value.is_finite() { value } else { 0.0 };
            let separator = if json.len() > 1 { "," } else { "" };
            write!(json, "{separator}\"{name}\":{value}").expect("a String takes everything");
        };
        member("demand_ratio", signals.demand_ratio);
        member("demand_ratio_min", signals.demand_ratio_min);
        member("saturation_ratio", signals.saturation_ratio);
        member("needs_scaleout", f64::from(u8::from(signals.needs_scaleout)));
        member("connection_limit", f64::from(self.limit));
        member("connections_in_flight", f64::from(self.in_flight));
        member("connection_headroom", f64::from(signals.headroom));
        member("rejection_rate", signals.rejection_rate);
        member("total_rejections", total_rejections as f64);
        member("requests_per_second", requests_per_second);
        json.push('}');
        json
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: autoscalers are configured with these keys and this shape; they are written out
    /// here, so that a change is a decision.
    #[test]
    fn the_object_is_flat() {
        let signals = Signals {
            demand_ratio: 2.5,
            demand_ratio_min: f64::NAN,
            needs_scaleout: true,
            calm_seconds: 12.5,
            saturation_ratio: 1.0,
            headroom: 0,
            rejection_rate: 150.25,
        };
        let scaling = Scaling { signals, limit: 10, in_flight: 10, ..Scaling::default() };
        assert_eq!(
            scaling.json(7, 100.0),
            "{\"demand_ratio\":2.5,\"demand_ratio_min\":0,\"saturation_ratio\":1,\
             \"needs_scaleout\":1,\"connection_limit\":10,\"connections_in_flight\":10,\
             \"connection_headroom\":0,\"rejection_rate\":150.25,\"total_rejections\":7,\
             \"requests_per_second\":100}"
        );
    }
}
