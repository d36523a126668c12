//! Confidence bounds of counts.

use statrs::function::gamma::gamma_lr;

/// The exact 95% bounds of a Poisson mean of which `seen` was counted (Garwood 1936): 2.5% on either side, and none below for zero, whose
/// upper bound is 3.69.
///
/// Wilson's bounds are for shares. Double runs per operation are none: one operation may run often.
#[must_use]
pub fn poisson(seen: f64) -> (f64, f64) {
    let low = if seen > 0.0 { quantile(seen, 0.025) } else { 0.0 };
    (low, quantile(seen + 1.0, 0.975))
}

/// Where the gamma law of this shape has `p` below it. Halves an interval, since the library's own quantile takes a step of Newton's from too far
/// away when the shape is large.
fn quantile(shape: f64, p: f64) -> f64 {
    let width = 8.0 * shape.sqrt() + 8.0;
    let (mut low, mut high) = ((shape - width).max(0.0), shape + width);
    while high - low > 1e-12 * high {
        let middle = (low + high) / 2.0;
        if middle <= low || middle >= high {
            break;
        }
        if middle > 0.0 && gamma_lr(shape, middle) < p {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low + high) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bounds_are_those_of_the_tables() {
        // Garwood's table.
        let table = [(0.0, 0.0, 3.6889), (1.0, 0.0253, 5.5716), (5.0, 1.6235, 11.6683), (100.0, 81.3638, 121.6271)];
        for (seen, low, high) in table {
            let (l, h) = poisson(seen);
            assert!((l - low).abs() < 1e-3 && (h - high).abs() < 1e-3, "{seen}: {l} {h}");
        }
        // Where the normal law does as well.
        let (low, high) = poisson(1e6);
        assert!((low - (1e6 - 1960.0)).abs() < 10.0 && (high - (1e6 + 1960.0)).abs() < 10.0, "{low} {high}");
    }
}
