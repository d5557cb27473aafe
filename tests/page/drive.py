"""Uses pages of `--html` in headless Chromium: load, filter, search, sort, hover, zoom; nothing may be logged as an error.

    python tests/page/drive.py FOLDER    opens predict.html, sweep.html, compare.html, papers.html and matrix.html of FOLDER and leaves screenshots there
"""

import pathlib
import sys

from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select, WebDriverWait

FOLDER = pathlib.Path(sys.argv[1]).resolve()
# The pages, and a column of numbers to sort by.
PAGES = {"predict": "images_per_s", "sweep": "images_per_s", "compare": "images_per_s", "papers": "predicted", "matrix": "measured_s"}


def browser(width, height):
    """A headless Chromium that logs, without a network."""
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for flag in ["--headless=new", "--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND", f"--window-size={width},{height}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options, webdriver.ChromeService("/usr/bin/chromedriver"))


def opened(driver, name):
    """The page, drawn."""
    driver.get(f"file://{FOLDER / name}.html")
    WebDriverWait(driver, 30).until(lambda d: d.execute_script("return document.documentElement.dataset.drawn === 'yes'"))


def cells(driver, name):
    """The texts of a column in the order shown."""
    head = [th.text.split(" ")[0] for th in driver.find_elements(By.CSS_SELECTOR, "#page thead th")]
    at = head.index(name)
    return driver.execute_script(
        "return [...document.querySelectorAll('#page tbody tr')].map(row => row.children[arguments[0]].textContent)", at
    )


def drawn_points(driver):
    """Rows in all charts of rows: points, and what the bars of histograms count."""
    return driver.execute_script(
        "return [...document.querySelectorAll('.plot canvas')].map(canvas => Chart.getChart(canvas))"
        ".map(c => c.data.datasets.filter(d => d.label !== 'equal').flatMap(d => d.data)"
        ".reduce((n, point) => n + (c.config.type === 'bar' ? point.y : 1), 0))"
    )


# What is wrong with charts: figures and names of axes, series that look alike, figures that lie on each other.
RULES = """
return [...document.querySelectorAll('.plot canvas')].map(canvas => Chart.getChart(canvas)).flatMap(chart => {
    const found = [], title = chart.canvas.closest('figure').querySelector('h2').textContent;
    for (const scale of Object.values(chart.scales)) {
        const name = scale.options.title.text, labels = scale.ticks.map(tick => tick.label).filter(label => label);
        if (labels.length < 2) found.push(`${title}: ${name} has the figures ${labels}`);
        if (/^number of/.test(name) && scale.ticks.some(tick => !Number.isInteger(tick.value))) found.push(`${title}: ${name} has parts: ${labels}`);
        if (new Set(labels).size < labels.length) found.push(`${title}: ${name} has a figure twice: ${labels}`);
        if (!/[a-z]{3}/.test(name) || /_(s|pct)\\b/.test(name)) found.push(`${title}: an axis is called ${name}`);
        const places = scale.ticks.map((tick, at) => scale.getPixelForTick(at)).sort((a, b) => a - b);
        const room = places.slice(1).map((place, at) => place - places[at]);
        if (scale.axis === 'y' && room.some(one => one < 10)) found.push(`${title}: figures of ${name} lie on each other`);
    }
    const looks = chart.data.datasets.map(d => JSON.stringify([d.borderColor, d.pointStyle, d.rotation, d.borderDash]));
    if (new Set(looks).size < looks.length) found.push(`${title}: series look alike`);
    return found;
});
"""


def use(driver, name):
    """Everything that a reader does with a page."""
    opened(driver, name)
    all_rows = len(driver.find_elements(By.CSS_SELECTOR, "#page tbody tr"))
    points = drawn_points(driver)
    assert all_rows > 1 and points and all(points), (name, all_rows, points)
    faults = driver.execute_script(RULES)
    assert not faults, (name, faults)

    # A filter keeps only its rows, in the table and in the charts.
    chosen = Select(driver.find_element(By.CSS_SELECTOR, ".filters select"))
    column = driver.find_element(By.CSS_SELECTOR, ".filters select").get_attribute("name")
    chosen.select_by_index(1)
    value = chosen.first_selected_option.text
    rows = cells(driver, column)
    assert 0 < len(rows) < all_rows and set(rows) == {value}, (name, column, value, rows)
    assert sum(drawn_points(driver)) < sum(points), name
    chosen.select_by_index(0)
    assert len(driver.find_elements(By.CSS_SELECTOR, "#page tbody tr")) == all_rows and drawn_points(driver) == points

    # A search without matches, and clearing it.
    search = driver.find_element(By.CSS_SELECTOR, "input[type=search]")
    search.send_keys("no such thing")
    assert not driver.find_elements(By.CSS_SELECTOR, "#page tbody tr")
    driver.execute_script("arguments[0].value = ''; arguments[0].dispatchEvent(new Event('input'))", search)

    # Sorted upwards, then downwards.
    head = next(b for b in driver.find_elements(By.CSS_SELECTOR, "thead button") if b.text.startswith(PAGES[name]))
    numbers = lambda: [float(text.replace(",", "")) for text in cells(driver, PAGES[name]) if text != "–"]
    driver.execute_script("arguments[0].click()", head)
    assert numbers() == sorted(numbers()), name
    driver.execute_script("arguments[0].click()", head)
    assert numbers() == sorted(numbers(), reverse=True) and len(set(numbers())) > 1, name

    # A point shows its row, a bar of a histogram its number of rows.
    canvas = driver.find_elements(By.CSS_SELECTOR, ".plot canvas")[-1]
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", canvas)
    x, y, label = driver.execute_script(
        "const c = Chart.getChart(arguments[0]), p = c.getDatasetMeta(0).data[0];"
        "return [p.x - c.width / 2, p.y + (c.config.type === 'bar' ? 1 : 0) - c.height / 2, c.data.datasets[0].label]", canvas
    )
    ActionChains(driver).move_to_element_with_offset(canvas, round(x), round(y)).perform()
    shown = driver.execute_script("const t = Chart.getChart(arguments[0]).tooltip; return [t.opacity, t.body.flatMap(b => b.lines)]", canvas)
    assert shown[0] > 0 and any(label in line for line in shown[1]), (name, shown)

    # Dragging zooms in, the button zooms out.
    range_of = lambda: driver.execute_script("const s = Chart.getChart(arguments[0]).scales.x; return [s.min, s.max]", canvas)
    before = range_of()
    drag = ActionChains(driver).move_to_element_with_offset(canvas, -40, -40).click_and_hold()
    drag.move_by_offset(80, 60).release().perform()
    WebDriverWait(driver, 5).until(lambda _: range_of() != before)
    zoomed = range_of()
    assert zoomed[1] - zoomed[0] < before[1] - before[0], (name, before, zoomed)
    driver.execute_script("[...document.querySelectorAll('.charts .reset')].at(-1).click()")
    assert range_of() == before, name

    # Every configuration's timelines are drawn.
    for select in driver.find_elements(By.CSS_SELECTOR, "select[name=timeline]"):
        for at in range(len(Select(select).options)):
            Select(select).select_by_index(at)
        bars = driver.execute_script(
            "return Object.values(Chart.instances).filter(c => c.config.type === 'bar' && c.canvas.closest('.bars'))"
            ".map(c => c.data.datasets.reduce((n, d) => n + d.data.length, 0))"
        )
        assert len(bars) == (2 if name == "compare" else 1) and all(bars), (name, bars)

    logged = [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    assert not logged, (name, logged)
    print(f"{name}: {all_rows} rows, {points} points, filtered, searched, sorted, hovered and zoomed")


def main():
    """All pages at both sizes."""
    for size, (width, height) in {"desk": (1300, 1000), "phone": (400, 800)}.items():
        driver = browser(width, height)
        try:
            for name in PAGES:
                if size == "desk":
                    use(driver, name)
                opened(driver, name)
                wide = driver.execute_script("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
                assert wide <= 0, f"{name} is {wide} pixels wider than a window of {width}"
                height = driver.execute_script("return document.documentElement.scrollHeight")
                driver.set_window_size(width, min(height + 200, 6000))
                driver.save_screenshot(str(FOLDER / f"{name}-{size}.png"))
                driver.set_window_size(width, 1000)
        finally:
            driver.quit()


main()
