//! The picture: double runs and memory over the window.

use plotters::coord::combinators::{BindKeyPoints as _, IntoLogRange as _};
use plotters::prelude::*;

use crate::report::span;
use crate::result::{Anchor, Measured};

/// The line of one figure over the window.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// What it is.
    pub name: String,
    /// Red, green and blue.
    pub colour: (u8, u8, u8),
    /// Windows in seconds, with the figure of each. Logarithms have no place for zero, so where it is zero there is no point.
    pub points: Vec<(f64, f64)>,
}

/// The upper bound of the double runs per million operations under `anchor`, and the double runs under each anchor. The bound is there also where none
/// was seen.
#[must_use]
pub fn rates(measured: &Measured, anchor: Anchor) -> Vec<Line> {
    let million = |rate: f64| rate * 1e6;
    let colours = [(31, 119, 180), (214, 39, 40), (44, 160, 44)];
    // First, since what is drawn later lies over it.
    let bound = Line {
        name: format!("upper 95% bound, {}", from(anchor)),
        colour: (150, 150, 150),
        points: points(measured, |window| million(window.of(anchor).judged.rate().high)),
    };
    let lines = Anchor::ALL.into_iter().map(|anchor| Line {
        name: format!("counted from {}", from(anchor)),
        colour: colours[anchor as usize],
        points: points(measured, |window| million(window.of(anchor).judged.rate().rate)),
    });
    std::iter::once(bound).chain(lines).collect()
}

/// Bytes at the worst moment in each store.
#[must_use]
pub fn memory(measured: &Measured, anchor: Anchor) -> Vec<Line> {
    let colours = [(148, 103, 189), (140, 86, 75), (23, 190, 207), (255, 127, 14), (188, 189, 34)];
    let bytes = |store: usize| {
        move |window: &crate::Window| {
            window.of(anchor).memory.as_ref().map_or(f64::NAN, |memory| memory.peak_bytes[store])
        }
    };
    let line = |(store, name): (usize, &String)| Line {
        name: name.clone(),
        colour: colours[store % colours.len()],
        points: points(measured, bytes(store)),
    };
    measured.stores.iter().enumerate().map(line).collect()
}

/// Draws both, one above the other, as SVG. `chosen` is the window that is recommended, in microseconds.
///
/// # Errors
/// When there is nothing to be drawn, or the library cannot.
pub fn draw(measured: &Measured, anchor: Anchor, chosen: Option<i64>) -> Result<String, DrawError> {
    let judged = measured.judged();
    let (Some(first), Some(last)) = (judged.first(), judged.last()) else { return Err(DrawError::Nothing) };
    // A single window has some room on either side.
    let windows = (first.length as f64 / 1e6 / 1.2, last.length as f64 / 1e6 * 1.2);
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE).map_err(DrawError::of)?;
        let (upper, lower) = area.split_vertically(SIZE.1 / 2);
        let (chosen, named) = (chosen.map(|window| window as f64 / 1e6), chosen.map(span));
        let named = named.map(|window| format!(", recommended: {window}")).unwrap_or_default();
        let title = format!("Double runs per million operations, by window{named}");
        panel(&upper, &title, windows, &rates(measured, anchor), chosen, SeriesLabelPosition::LowerLeft, &count)?;
        let title = format!("Bytes at the worst moment, by window counted from {}", from(anchor));
        panel(&lower, &title, windows, &memory(measured, anchor), chosen, SeriesLabelPosition::UpperLeft, &bytes)?;
        area.present().map_err(DrawError::of)?;
    }
    Ok(svg)
}

/// Why there is no picture.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DrawError {
    /// No window is judged.
    #[error("the trace is too short for every window of the grid, so there is nothing to be drawn")]
    Nothing,
    /// The library says so.
    #[error("the picture cannot be drawn: {0}")]
    Library(String),
}

impl DrawError {
    fn of(error: impl std::fmt::Display) -> Self {
        Self::Library(error.to_string())
    }
}

/// The size of the picture. Points are at whole pixels, so it is large.
const SIZE: (u32, u32) = (1200, 1200);

fn panel(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    title: &str,
    windows: (f64, f64),
    lines: &[Line],
    chosen: Option<f64>,
    legend_at: SeriesLabelPosition,
    label: &dyn Fn(&f64) -> String,
) -> Result<(), DrawError> {
    let values = || lines.iter().flat_map(|line| &line.points).map(|(_, value)| *value);
    let low = values().fold(f64::INFINITY, f64::min);
    let high = values().fold(0.0, f64::max);
    let (low, high) = if low <= high { (low, high) } else { (0.1, 1.0) };
    // Whole powers of ten, at least one.
    let (low, high) = (low.log10().floor() as i32, (high.log10().ceil() as i32).max(low.log10().floor() as i32 + 1));
    let ticks = (low..=high).map(|power| 10f64.powi(power)).collect();
    let times = TIMES.into_iter().filter(|time| (windows.0..=windows.1).contains(time)).collect();
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 24))
        .margin(16)
        .margin_right(40)
        .x_label_area_size(40)
        .y_label_area_size(100)
        .build_cartesian_2d(
            (windows.0..windows.1).log_scale().with_key_points(times),
            (10f64.powi(low)..10f64.powi(high)).log_scale().with_key_points(ticks),
        )
        .map_err(DrawError::of)?;
    chart
        .configure_mesh()
        .x_labels(TIMES.len())
        .y_labels(40)
        .x_label_formatter(&|seconds| span((seconds * 1e6) as i64))
        .y_label_formatter(&|value| label(value))
        .label_style(("sans-serif", 18))
        .light_line_style(TRANSPARENT)
        .draw()
        .map_err(DrawError::of)?;
    if let Some(chosen) = chosen {
        let ends = [(chosen, 10f64.powi(low)), (chosen, 10f64.powi(high))];
        chart.draw_series(LineSeries::new(ends, BLACK)).map_err(DrawError::of)?;
    }
    for Line { name, colour: (red, green, blue), points } in lines {
        let colour = RGBColor(*red, *green, *blue);
        let drawn =
            chart.draw_series(LineSeries::new(points.clone(), colour.stroke_width(2))).map_err(DrawError::of)?;
        drawn.label(name).legend(move |(x, y)| PathElement::new([(x, y), (x + 24, y)], colour.stroke_width(3)));
        let dots = points.iter().map(|point| Circle::new(*point, 3, colour.filled()));
        chart.draw_series(dots).map_err(DrawError::of)?;
    }
    let mut legend = chart.configure_series_labels();
    legend.position(legend_at).background_style(WHITE.mix(0.8)).border_style(BLACK);
    legend.label_font(("sans-serif", 16)).draw().map_err(DrawError::of)
}

fn points(measured: &Measured, figure: impl Fn(&crate::Window) -> f64) -> Vec<(f64, f64)> {
    let point = |window: &crate::Window| (window.length as f64 / 1e6, figure(window));
    measured.judged().iter().map(point).filter(|(_, value)| value.is_finite() && *value > 0.0).collect()
}

fn from(anchor: Anchor) -> &'static str {
    match anchor {
        Anchor::Arrival => "the arrival that ran",
        Anchor::Completion => "its completion",
        Anchor::Renewed => "the last hit (renewed)",
    }
}

fn count(value: &f64) -> String {
    if (1e-3..1e7).contains(value) { format!("{value}") } else { format!("{value:e}") }
}

/// Powers of ten, with the units that go with them.
fn bytes(value: &f64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    let power = (value.log10().round() as i32).clamp(0, 18);
    format!("{} {}", 10i32.pow((power % 3) as u32), units[(power / 3) as usize])
}

/// Where the axis of windows has its marks, in seconds.
const TIMES: [f64; 12] =
    [1.0, 10.0, 60.0, 600.0, 3600.0, 21_600.0, 86_400.0, 259_200.0, 604_800.0, 2_592_000.0, 7_776_000.0, 31_536_000.0];
