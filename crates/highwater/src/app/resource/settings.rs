//! The settings of the routes of a resource.

/// The choices.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) per_page: u32,
    pub(super) per_page_max: u32,
    pub(super) if_match_required: bool,
}
