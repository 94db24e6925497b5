//! Routes registered next to the measured ones, so that every router has a realistic table. None of
//! them is requested by the benchmark. Included by each peer with `#[path]`: one list for all.

/// Registered by every peer that has a router; answered with 204.
pub const EXTRA: [&str; 32] = [
    "/api/v1/health",
    "/api/v1/status",
    "/api/v1/metrics",
    "/api/v1/login",
    "/api/v1/logout",
    "/api/v1/orgs",
    "/api/v1/orgs/{org}",
    "/api/v1/orgs/{org}/repos",
    "/api/v1/orgs/{org}/members",
    "/api/v1/repos/{owner}/{repo}",
    "/api/v1/repos/{owner}/{repo}/issues",
    "/api/v1/repos/{owner}/{repo}/issues/{number}",
    "/api/v1/repos/{owner}/{repo}/pulls",
    "/api/v1/repos/{owner}/{repo}/pulls/{number}",
    "/api/v1/repos/{owner}/{repo}/commits",
    "/api/v1/repos/{owner}/{repo}/commits/{sha}",
    "/api/v1/repos/{owner}/{repo}/branches",
    "/api/v1/gists",
    "/api/v1/gists/{id}",
    "/api/v1/search",
    "/api/v1/search/code",
    "/api/v1/search/users",
    "/api/v1/notifications",
    "/api/v1/notifications/{id}",
    "/api/v1/events",
    "/api/v1/feeds",
    "/api/v1/teams",
    "/api/v1/teams/{id}",
    "/api/v1/teams/{id}/members",
    "/users",
    "/users/{id}/keys",
    "/users/{id}/followers",
];

/// The number in environment variable `name`, or `default` if it is absent or not a number.
pub fn env_usize(name: &str, default: usize) -> usize {
    std::env::var(name)
        .ok()
        .and_then(|v| v.parse().ok())
        .unwrap_or(default)
}
