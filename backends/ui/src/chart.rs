//! Bar and line charts as SVG inside a page, with the numbers below for those who cannot see it.
//!
//! The drawing is measured in percent and the words around it are HTML, so that a chart fills any width and its words keep
//! their size.

use std::fmt::{self, Write};

use moongate_core::{
    Scope,
    builtin::{Effect, ToolError, ToolOutput, ToolSpec},
    html::{self, Escaped},
    schema,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::error::{Error, required};

/// More points cannot be told apart at this size.
const MAX_POINTS: usize = 500;
/// Steps of the axis, before its ends are moved to round numbers.
const STEPS: u8 = 5;
/// Labels that fit below the chart, and how many of them on a telephone.
const MAX_LABELS: usize = 10;
const FEW_LABELS: usize = 5;
/// Points of a line that are far enough apart for dots.
const MAX_DOTS: usize = 60;
/// The height of a bar without height, which still shows where it would be.
const SLIVER: f64 = 0.5;

#[derive(Deserialize)]
pub(crate) struct Chart {
    #[serde(rename = "type")]
    kind: ChartKind,
    title: Option<String>,
    data: Vec<Point>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ChartKind {
    Bar,
    Line,
}

#[derive(Serialize, Deserialize)]
struct Point {
    label: String,
    value: f64,
}

pub(crate) fn tools() -> Vec<ToolSpec> {
    let point = json!({"type": "object", "additionalProperties": false, "required": ["label", "value"], "properties": {
        "label": {"type": "string", "maxLength": 256, "description": "What the value belongs to"},
        "value": {"type": "number", "description": "How much"},
    }});
    vec![ToolSpec {
        name: "visualize_data",
        title: "Visualize data",
        description: "Shows the user a bar or line chart of labelled values.",
        input_schema: schema::object(
            json!({
                "type": schema::choice(&["bar", "line"], "The kind of chart"),
                "data": {"type": "array", "minItems": 1, "maxItems": MAX_POINTS, "items": point,
                    "description": "The values in the order they are shown"},
                "title": {"type": "string", "maxLength": 512, "description": "A heading"},
            }),
            &["type", "data"],
        ),
        aliases: &[],
        scope: Scope::READ,
        effect: Effect::Reads,
    }]
}

pub(crate) fn draw(chart: &Chart, id: &str) -> Result<ToolOutput, ToolError> {
    if chart.data.is_empty() {
        return Err(Error::Missing("data").into());
    }
    if let Some(title) = &chart.title {
        required("title", title)?;
    }
    let told =
        json!({"type": chart.kind, "title": chart.title, "data": chart.data, "dataPoints": chart.data.len()});
    let page = chart.page().expect("writing to a string cannot fail");
    let uri = format!("ui://visualizations/{id}");
    Ok(ToolOutput::new(format!("Showing the user a {}.", chart.name()), told)
        .with_block(html::resource(&uri, &page)))
}

/// From values to heights: a range of round numbers around them, in equal steps.
struct Scale {
    low: f64,
    high: f64,
    step: f64,
    steps: u8,
}

impl Scale {
    fn of(chart: &Chart) -> Self {
        // Bars stand on zero; a line shows its own range.
        let start = if chart.kind == ChartKind::Bar { Some(0.0) } else { None };
        let values = || chart.data.iter().map(|point| point.value).chain(start);
        let low = values().fold(f64::INFINITY, f64::min);
        let high = values().fold(f64::NEG_INFINITY, f64::max);
        Self::round(low, high).unwrap_or_else(|| Self::plain(low, high))
    }

    /// Ends and steps of 1, 2 or 5 times a power of ten; none when that leaves what a float can hold.
    fn round(low: f64, high: f64) -> Option<Self> {
        let rough = part(low, high);
        let power = 10_f64.powf(rough.log10().floor());
        let step =
            [1.0, 2.0, 5.0, 10.0].map(|times| times * power).into_iter().find(|step| *step >= rough)?;
        let (first, last) = ((low / step).floor(), (high / step).ceil());
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "saturates, and is checked below"
        )]
        let steps = (last - first) as u8;
        let scale = Self { low: first * step, high: last * step, step, steps };
        let holds = scale.low.is_finite() && scale.high.is_finite() && scale.low <= low && scale.high >= high;
        (holds && (1..=STEPS + 2).contains(&steps)).then_some(scale)
    }

    /// The values' own range; without steps when they are all the same.
    fn plain(low: f64, high: f64) -> Self {
        let step = part(low, high);
        Self { low, high, step, steps: if step > 0.0 { STEPS } else { 0 } }
    }

    /// Where a value lies between the lowest (0) and the highest (1); in the middle when all are the same.
    fn share(&self, value: f64) -> f64 {
        // Halves keep the span of the largest numbers finite.
        let span = self.high / 2.0 - self.low / 2.0;
        if span > 0.0 { (value / 2.0 - self.low / 2.0) / span } else { 0.5 }
    }

    /// Percent from the top.
    fn y(&self, value: f64) -> f64 {
        (1.0 - self.share(value)) * 100.0
    }

    /// The values that have a line across the chart, from the highest.
    fn ticks(&self) -> impl Iterator<Item = f64> {
        (0..=self.steps).rev().map(|tick| {
            let share = if self.steps == 0 { 0.5 } else { f64::from(tick) / f64::from(self.steps) };
            self.low * (1.0 - share) + self.high * share
        })
    }

    /// A tick with as many digits as tell it from the next one.
    fn text(&self, value: f64) -> String {
        if self.steps == 0 {
            return exact(value);
        }
        let size = self.low.abs().max(self.high.abs());
        let (size, step) = (size.log10().floor(), self.step.log10().floor());
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 15")]
        let digits = |count: f64| count.clamp(0.0, 15.0) as usize;
        if value.abs() < self.step / 2.0 {
            "0".to_owned()
        } else if size < 9.0 && step > -7.0 {
            grouped(&format!("{value:.*}", digits(-step)))
        } else {
            format!("{value:.*e}", digits(size - step))
        }
    }
}

impl Chart {
    fn name(&self) -> String {
        let kind = if self.kind == ChartKind::Bar { "bar chart" } else { "line chart" };
        let points =
            if self.data.len() == 1 { "1 value".to_owned() } else { format!("{} values", self.data.len()) };
        match &self.title {
            Some(title) => format!("{kind} \"{title}\" of {points}"),
            None => format!("{kind} of {points}"),
        }
    }

    fn page(&self) -> Result<String, fmt::Error> {
        let title = self.title.as_deref().unwrap_or("Chart");
        let scale = Scale::of(self);
        let mut body = format!(r#"<h1>{}</h1><div class="chart">"#, Escaped(title));
        ticks(&mut body, &scale)?;
        self.svg(&mut body, &scale)?;
        self.labels(&mut body)?;
        body.push_str("</div><details><summary>Values</summary><table><tbody>");
        for Point { label, value } in &self.data {
            let (label, value) = (Escaped(label), exact(*value));
            write!(body, r#"<tr><th scope="row">{label}</th><td>{value}</td></tr>"#)?;
        }
        body.push_str("</tbody></table></details>");
        Ok(html::page(title, &body))
    }

    fn svg(&self, out: &mut String, scale: &Scale) -> fmt::Result {
        let name = self.name();
        write!(out, r#"<div class="plot"><svg role="img" aria-label="{}">"#, Escaped(&name))?;
        for tick in scale.ticks() {
            let y = scale.y(tick);
            write!(out, r#"<line class="axis" x1="0" y1="{y:.2}%" x2="100%" y2="{y:.2}%"/>"#)?;
        }
        match self.kind {
            ChartKind::Bar => self.bars(out, scale)?,
            ChartKind::Line => self.line(out, scale)?,
        }
        out.push_str("</svg></div>");
        Ok(())
    }

    fn bars(&self, out: &mut String, scale: &Scale) -> fmt::Result {
        let width = self.step() * 0.7;
        let zero = scale.y(0.0);
        for (index, point) in self.data.iter().enumerate() {
            let y = scale.y(point.value);
            let height = (y - zero).abs().max(SLIVER);
            let (x, top) = (self.x(index) - width / 2.0, y.min(zero).min(100.0 - height));
            write!(
                out,
                r#"<rect class="mark" x="{x:.2}%" y="{top:.2}%" width="{width:.2}%" height="{height:.2}%">"#
            )?;
            tooltip(out, point)?;
            out.push_str("</rect>");
        }
        write!(out, r#"<line class="zero" x1="0" y1="{zero:.2}%" x2="100%" y2="{zero:.2}%"/>"#)
    }

    fn line(&self, out: &mut String, scale: &Scale) -> fmt::Result {
        // A polyline knows no percent; a stretched drawing inside the drawing is a hundred units wide and high.
        out.push_str(
            r#"<svg viewBox="0 0 100 100" preserveAspectRatio="none"><polyline class="line" points=""#,
        );
        for (index, point) in self.data.iter().enumerate() {
            write!(out, "{:.2},{:.2} ", self.x(index), scale.y(point.value))?;
        }
        out.push_str(r#""/></svg>"#);
        let radius = if self.data.len() > MAX_DOTS { 1.5 } else { 3.0 };
        for (index, point) in self.data.iter().enumerate() {
            let (x, y) = (self.x(index), scale.y(point.value));
            write!(out, r#"<circle class="mark" cx="{x:.2}%" cy="{y:.2}%" r="{radius}">"#)?;
            tooltip(out, point)?;
            out.push_str("</circle>");
        }
        Ok(())
    }

    /// A label below each column, or below every few with the room of those without; the style cuts what does not fit. The
    /// table has them in full.
    fn labels(&self, out: &mut String) -> fmt::Result {
        let every = self.data.len().div_ceil(MAX_LABELS).max(1);
        let some = if every > 1 { " some" } else { "" };
        let many = if self.data.len().div_ceil(every) > FEW_LABELS { " many" } else { "" };
        write!(out, r#"<div class="labels{some}{many}" aria-hidden="true">"#)?;
        let column = |index: usize| self.x(index) - self.step() / 2.0;
        for (index, point) in self.data.iter().enumerate().step_by(every) {
            let from = column(index);
            let room = column((index + every).min(self.data.len())) - from;
            let label = Escaped(&point.label);
            write!(out, r#"<span style="--from:{from:.2}%;--room:{room:.2}%">{label}</span>"#)?;
        }
        out.push_str("</div>");
        Ok(())
    }

    /// The middle of the column of one point, in percent. A single point is in the middle of the chart.
    fn x(&self, index: usize) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "there are at most a few hundred points")]
        let index = index as f64;
        (index + 0.5) * self.step()
    }

    fn step(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "there are at most a few hundred points")]
        let count = self.data.len().max(1) as f64;
        100.0 / count
    }
}

fn ticks(out: &mut String, scale: &Scale) -> fmt::Result {
    out.push_str(r#"<div class="ticks" aria-hidden="true">"#);
    for tick in scale.ticks() {
        write!(out, "<span>{}</span>", scale.text(tick))?;
    }
    out.push_str("</div>");
    Ok(())
}

fn tooltip(out: &mut String, point: &Point) -> fmt::Result {
    write!(out, "<title>{}: {}</title>", Escaped(&point.label), exact(point.value))
}

/// The distance in [`STEPS`] parts, each of which is finite for all numbers.
fn part(low: f64, high: f64) -> f64 {
    high / f64::from(STEPS) - low / f64::from(STEPS)
}

/// A number in full, without hundreds of zeros.
fn exact(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 {
        "0".to_owned()
    } else if (1e-6..1e15).contains(&size) {
        grouped(&value.to_string())
    } else {
        format!("{value:e}")
    }
}

/// A decimal number with its thousands set apart.
fn grouped(number: &str) -> String {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = whole.trim_start_matches('-').len();
    let mut out = String::with_capacity(number.len() + digits / 3);
    for (index, character) in whole.chars().enumerate() {
        let left = whole.len() - index;
        if left < digits && left.is_multiple_of(3) {
            out.push(',');
        }
        out.push(character);
    }
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn chart(kind: ChartKind, values: &[f64]) -> Chart {
        let data = values.iter().map(|&value| Point { label: "l".into(), value }).collect();
        Chart { kind, title: None, data }
    }

    #[test]
    fn one_point_is_drawn_in_the_middle() {
        let page = chart(ChartKind::Line, &[42.0]).page().unwrap();
        assert!(page.contains(r#"<circle class="mark" cx="50.00%" cy="50.00%" r="3">"#), "{page}");
    }

    #[test]
    fn bars_stand_on_zero_in_both_directions() {
        let page = chart(ChartKind::Bar, &[10.0, -10.0, 0.0]).page().unwrap();
        assert_eq!(page.matches("<rect").count(), 3);
        assert!(page.contains(r#"y="0.00%" width="23.33%" height="50.00%""#), "{page}");
        assert!(page.contains(r#"y="50.00%" width="23.33%" height="50.00%""#), "{page}");
        assert!(page.contains(r#"y="50.00%" width="23.33%" height="0.50%""#), "{page}");
    }

    #[test]
    fn the_axis_has_round_numbers_with_the_digits_they_need() {
        for (values, expected) in [
            (&[1.0, 3.0, 7.4][..], &["8", "6", "4", "2", "0"][..]),
            (&[-30.0, 97.0], &["100", "50", "0", "-50"]),
            (&[0.1, 0.3], &["0.3", "0.2", "0.1", "0"]),
            (&[1_234_567.0, 7_407_402.0], &["8,000,000", "6,000,000", "4,000,000", "2,000,000", "0"]),
            (&[2.5e12], &["2.5e12", "2.0e12", "1.5e12", "1.0e12", "5.0e11", "0"]),
            (&[-4e-9], &["0", "-1e-9", "-2e-9", "-3e-9", "-4e-9"]),
            (&[0.0], &["0"]),
        ] {
            let scale = Scale::of(&chart(ChartKind::Bar, values));
            let ticks: Vec<_> = scale.ticks().map(|tick| scale.text(tick)).collect();
            assert_eq!(ticks, expected, "{values:?}");
        }
        let scale = Scale::of(&chart(ChartKind::Line, &[1_000_001.0, 1_000_004.0]));
        assert_eq!(
            scale.ticks().map(|tick| scale.text(tick)).collect::<Vec<_>>(),
            ["1,000,004", "1,000,003", "1,000,002", "1,000,001"]
        );
    }

    #[test]
    fn values_are_told_exactly_and_briefly() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "0"),
            (1.5, "1.5"),
            (-999.0, "-999"),
            (-1000.0, "-1,000"),
            (1_234_567.125, "1,234,567.125"),
            (1e300, "1e300"),
            (-2.5e-9, "-2.5e-9"),
        ] {
            assert_eq!(exact(value), expected);
        }
    }

    #[test]
    fn every_few_columns_share_a_label() {
        let page = chart(ChartKind::Bar, &[1.0; 23]).page().unwrap();
        assert_eq!(page.matches("--room:13.04%").count(), 7, "{page}");
        assert_eq!(page.matches("--room:8.70%").count(), 1, "{page}");
    }

    proptest! {
        #[test]
        fn every_point_lies_inside_whatever_the_values(
            values in prop::collection::vec(prop::num::f64::NORMAL | prop::num::f64::ZERO, 1..40),
            bar in any::<bool>(),
        ) {
            let chart = chart(if bar { ChartKind::Bar } else { ChartKind::Line }, &values);
            let page = chart.page().unwrap();
            prop_assert!(!page.contains("NaN") && !page.contains("inf,") && !page.contains("\"inf"));
            let scale = Scale::of(&chart);
            for (index, point) in chart.data.iter().enumerate() {
                prop_assert!((-0.01..=100.01).contains(&scale.y(point.value)));
                prop_assert!((0.0..=100.0).contains(&chart.x(index)));
            }
            let ticks: Vec<_> = scale.ticks().map(|tick| scale.text(tick)).collect();
            let different: HashSet<_> = ticks.iter().collect();
            prop_assert_eq!(ticks.len(), different.len(), "{:?}", ticks);
        }
    }
}
