//! What does a server tell those who decide how many of it there are?
//!
//! The figures come from whoever admits work, which is above this module: [`Scaling`] is the shape in
//! which they arrive, for the page and for `GET /scaling`.
//!
//! Never here: how they are found.

use std::fmt::Write;

/// What an autoscaler, an operator or an alert goes by. All of one server.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Signals {
    /// Work offered over work that can be done, smoothed, counting every attempt. Not capped at 1.
    pub demand_ratio: f64,
    /// The same on the assumption that refused clients try again, so that a part of the attempts is
    /// no demand of its own.
    pub demand_ratio_min: f64,
    /// Whether this server was asked for more than it can do, and has not been calm since.
    pub needs_scaleout: bool,
    /// How much of what is scarcest is used, the workers' time or the places under the limit, 0 to 1.
    pub saturation_ratio: f64,
    /// How many more connections with work the limit leaves room for.
    pub headroom: u32,
    /// Turned away per second, over the last second.
    pub rejection_rate: f64,
}

/// Admission at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Scaling {
    /// What is to be concluded.
    pub(crate) signals: Signals,
    /// How much load there may be, in connections.
    pub(crate) limit: u32,
    /// How much there is.
    pub(crate) in_flight: u32,
    /// Connections that the kernel's gate answered with a reset.
    pub(crate) reset: u64,
    /// Attempts to connect that the kernel's gate did not answer.
    pub(crate) dropped: u64,
    /// Attempts to connect that found the listener's backlog full, as it is kept while the limit is
    /// reached.
    pub(crate) overflowed: u64,
    /// CPU time that refusing has cost, in seconds.
    pub(crate) shed_cpu_seconds: f64,
}

impl Scaling {
    /// Turned away before there was a connection.
    pub(crate) fn refused_connections(&self) -> u64 {
        self.reset + self.dropped + self.overflowed
    }

    /// A JSON object of numbers, one level deep, whose keys are a contract with autoscalers.
    pub(super) fn json(&self, total_rejections: u64, requests_per_second: f64) -> String {
        let signals = &self.signals;
        let mut json = String::from("{");
        let mut member = |name: &str, value: f64| {
            // JSON has no infinity and no NaN; neither occurs, and zero would be the quiet answer.
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

    /// Purpose: the keys and the shape are what autoscalers are configured with; spelled out here,
    /// so that changing one is a decision.
    #[test]
    fn the_object_is_flat() {
        let signals = Signals {
            demand_ratio: 2.5,
            demand_ratio_min: f64::NAN,
            needs_scaleout: true,
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
