use highwater::Csv;

fn main() {
    let _ = Csv([(1, 2)]);
}
