//! The server's side of HTTP/2: what a client sends, and what it gets, case by case (`cases.txt`), however the bytes are
//! split; then windows, priorities, deadlines, abuse, and tunnels.

mod abuse;
mod cases;
mod random;
mod scene;
mod streams;
mod tunnels;
mod windows;
