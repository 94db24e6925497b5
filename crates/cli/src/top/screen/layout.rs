//! Which part of the screen stands where?
//!
//! Pure: a size in, places out. What does not fit is left out, the least important first: the server's
//! choices, then workers and refusals, then endpoints; the first line and the keys stay longest.

use ratatui::layout::Rect;

/// Figures with a history, one a row.
pub(crate) const VITALS: u16 = 7;

/// From this height on, each history is two rows high.
const TALL: u16 = 40;

/// From this width on, workers and refusals stand side by side.
const WIDE: u16 = 70;

/// Rows of workers, and of refusals, without their title.
const MIDDLE_MAX: u16 = 6;

/// Title, head and one row.
const ENDPOINTS_MIN: u16 = 3;

/// Title and three rows.
const SERVER: u16 = 4;

/// The places; those without a row or column are not drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) head: Rect,
    pub(crate) banner: Rect,
    pub(crate) vitals: Rect,
    /// Rows of each figure's history.
    pub(crate) vital_rows: u16,
    pub(crate) workers: Rect,
    pub(crate) refusals: Rect,
    pub(crate) endpoints: Rect,
    pub(crate) server: Rect,
    pub(crate) keys: Rect,
}

/// What there is to be placed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) banner: bool,
    pub(crate) workers: usize,
    pub(crate) refusals: usize,
}

/// Places for the `wanted` parts on a screen of this size.
pub(crate) fn plan(area: Rect, wanted: Wanted) -> Plan {
    let mut rest = area;
    let mut plan = Plan { head: top(&mut rest, 1), ..Plan::default() };
    plan.banner = top(&mut rest, u16::from(wanted.banner));
    plan.keys = bottom(&mut rest, 1);
    plan.vital_rows = if area.height >= TALL { 2 } else { 1 };
    plan.vitals = top(&mut rest, VITALS * plan.vital_rows);
    if rest.height >= SERVER + ENDPOINTS_MIN + 3 {
        plan.server = bottom(&mut rest, SERVER);
    }
    let rows = |count: usize| u16::try_from(count).unwrap_or(MIDDLE_MAX).clamp(1, MIDDLE_MAX);
    let spare = rest.height.saturating_sub(ENDPOINTS_MIN + 2);
    if area.width >= WIDE {
        let height = 1 + rows(wanted.workers.max(wanted.refusals));
        if spare >= 2 {
            let middle = top(&mut rest, height.min(spare));
            let half = middle.width / 2;
            plan.workers = Rect { width: half.saturating_sub(2), ..middle };
            plan.refusals = Rect { x: middle.x + half, width: middle.width - half, ..middle };
        }
    } else if spare >= 4 {
        plan.workers = top(&mut rest, (1 + rows(wanted.workers)).min(spare / 2));
        plan.refusals = top(&mut rest, (1 + rows(wanted.refusals)).min(spare / 2));
    }
    if rest.height >= ENDPOINTS_MIN {
        plan.endpoints = rest;
    }
    plan
}

/// Takes up to `height` rows from above.
fn top(rest: &mut Rect, height: u16) -> Rect {
    let height = height.min(rest.height);
    let taken = Rect { height, ..*rest };
    rest.y += height;
    rest.height -= height;
    taken
}

/// Takes up to `height` rows from below.
fn bottom(rest: &mut Rect, height: u16) -> Rect {
    let height = height.min(rest.height);
    rest.height -= height;
    Rect { y: rest.y + rest.height, height, ..*rest }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(plan: &Plan) -> [Rect; 8] {
        let Plan { head, banner, vitals, workers, refusals, endpoints, server, keys, .. } = *plan;
        [head, banner, vitals, workers, refusals, endpoints, server, keys]
    }

    /// Purpose: on no size of a terminal do parts overlap or lie outside, which would panic.
    #[test]
    fn parts_are_apart_and_inside() {
        for width in 0..=120 {
            for height in 0..=60 {
                let area = Rect::new(0, 0, width, height);
                for (workers, refusals) in [(0, 0), (2, 1), (64, 20)] {
                    for banner in [false, true] {
                        let plan = plan(area, Wanted { banner, workers, refusals });
                        let parts = parts(&plan);
                        let drawn: Vec<&Rect> =
                            parts.iter().filter(|part| !part.is_empty()).collect();
                        for (at, one) in drawn.iter().enumerate() {
                            assert_eq!(one.intersection(area), **one, "{area} {one}");
                            for other in &drawn[at + 1..] {
                                assert!(!one.intersects(**other), "{area}: {one} {other}");
                            }
                        }
                    }
                }
            }
        }
    }

    /// Purpose: an ordinary terminal shows every part; a small one the figures, and how to leave.
    #[test]
    fn what_fits() {
        let wanted = Wanted { banner: false, workers: 2, refusals: 1 };
        let all = plan(Rect::new(0, 0, 80, 24), wanted);
        assert!([all.workers, all.refusals, all.server].iter().all(|part| part.height >= 3));
        assert!(all.endpoints.height >= 5, "{all:?}");
        let small = plan(Rect::new(0, 0, 40, 10), wanted);
        assert_eq!((small.head.height, small.vitals.height, small.keys.height), (1, 7, 1));
        assert!(small.endpoints.is_empty() && small.server.is_empty());
        assert_eq!(plan(Rect::new(0, 0, 120, 60), wanted).vital_rows, 2);
    }
}
