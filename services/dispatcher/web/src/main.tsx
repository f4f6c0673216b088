import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { ApiError, ask, hasToken, onRefused, pollEvery, useToken } from "./api";
import { dark } from "./chart";
import { JobPage } from "./pages/job";
import { JobManagerPage } from "./pages/jobmanager";
import { JobsPage, OverviewPage } from "./pages/overview";
import { SubmitPage } from "./pages/submit";
import { TaskManagerPage, TaskManagersPage } from "./pages/taskmanagers";
import { Dialog, PageTitle } from "./parts";
import { go, startRouter, useRoute } from "./router";
import { config, dismiss, loginWanted, notes, theme, useStore, zone, type Config } from "./store";

const SECTIONS: [string, string, string][] = [
  ["overview", "Overview", "o"],
  ["jobs", "Jobs", "j"],
  ["taskmanagers", "TaskManagers", "t"],
  ["jobmanager", "JobManager", "m"],
  ["submit", "Submit", "s"],
];

async function readConfig(): Promise<Config> {
  const found = await ask<Config>("/config");
  pollEvery(found["refresh-interval"]);
  config.set(found);
  return found;
}

function Page() {
  const { path } = useRoute();
  const [section = "overview", id = "", tab = "", ...rest] = path;
  if (section === "jobs" && id) return <JobPage key={id} id={id} tab={tab} rest={rest} />;
  if (section === "jobs") return <JobsPage />;
  if (section === "taskmanagers" && id) return <TaskManagerPage key={id} id={id} tab={tab} rest={rest} />;
  if (section === "taskmanagers") return <TaskManagersPage />;
  if (section === "jobmanager") return <JobManagerPage tab={id} rest={[tab, ...rest].filter(Boolean)} />;
  if (section === "submit") return <SubmitPage />;
  if (section === "overview") return <OverviewPage />;
  return <><PageTitle>There is no such page</PageTitle><p class="empty"><a href="#/overview">To the overview</a></p></>;
}

function App() {
  const { path } = useRoute();
  const found = useStore(config);
  const login = useStore(loginWanted);
  const [trouble, setTrouble] = useState("");
  const [help, setHelp] = useState(false);
  const [menu, setMenu] = useState(false);
  useEffect(() => setMenu(false), [path.join("/")]);
  useEffect(() => {
    let timer = 0;
    const begin = () =>
      readConfig().then(
        () => setTrouble(""),
        (error) => {
          if (error instanceof ApiError && error.status === 401) return;
          setTrouble(error instanceof Error ? error.message : String(error));
          timer = window.setTimeout(begin, 3000);
        },
      );
    void begin();
    return () => clearTimeout(timer);
  }, []);
  useEffect(() => {
    let first = "";
    let timer = 0;
    const press = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (event.ctrlKey || event.metaKey || event.altKey || target.closest("input, textarea, select, dialog")) {
        if (event.key === "Escape") target.blur();
        return;
      }
      if (event.key === "/") {
        event.preventDefault();
        document.querySelector<HTMLInputElement>("main input[type=search]")?.focus();
      } else if (event.key === "?") setHelp(true);
      else if (event.key === "Escape" && document.querySelector("#menu.open")) setMenu(false);
      else if (event.key === "Escape") document.querySelector<HTMLButtonElement>("[data-close]")?.click();
      else if (event.key === "d") theme.set(dark.get() ? "light" : "dark");
      else if (event.key === "g") {
        first = "g";
        clearTimeout(timer);
        timer = window.setTimeout(() => (first = ""), 1200);
      } else if (first === "g") {
        const section = SECTIONS.find(([, , key]) => key === event.key);
        if (section) go([section[0]]);
        first = "";
      }
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
  const submits = found?.features["web-submit"] ?? false;
  const history = found?.features["web-history"] ?? false;
  const there = (key: string) => (key !== "submit" || submits) && !(history && ["taskmanagers", "jobmanager"].includes(key));
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), document.querySelector<HTMLElement>("main")?.focus())}>To the content</a>
      <aside>
        <a class="brand" href="#/overview">
          <img src="dashboard/icon.svg" alt="" width="26" height="26" /> Firesteel
        </a>
        <button type="button" class="menu-button" aria-expanded={menu} aria-controls="menu" onClick={() => setMenu(!menu)} data-action="menu">{SECTIONS.find(([key]) => key === (path[0] ?? "overview"))?.[1] ?? "Menu"} <span aria-hidden="true">☰</span></button>
        <div id="menu" class={menu ? "open" : ""}>
        <nav aria-label="Sections">
          {SECTIONS.filter(([key]) => there(key)).map(([key, title, letter]) => (
            <a key={key} href={`#/${key}`} class={(path[0] ?? "overview") === key ? "now" : ""} aria-current={(path[0] ?? "overview") === key ? "page" : undefined} title={`g ${letter}`}>
              {title}
            </a>
          ))}
        </nav>
        <Foot version={found?.["firesteel-version"]} help={() => setHelp(true)} />
        </div>
      </aside>
      <main id="main" tabIndex={-1}>
        {trouble && <p class="trouble" role="alert">{trouble}</p>}
        {found ? <Page /> : login === "required" ? <p class="empty">Log in to see this cluster.</p> : !trouble && <p class="empty">Loading …</p>}
      </main>
      <Notes />
      {login !== "no" && <Login required={login === "required"} />}
      {help && <Help close={() => setHelp(false)} />}
    </>
  );
}

function Foot({ version, help }: { version: string | undefined; help: () => void }) {
  const chosen = useStore(theme);
  const where = useStore(zone);
  const found = useStore(config);
  const access = found?.["firesteel-access"];
  return (
    <div class="foot">
      <label>Theme<select value={chosen} onChange={(event) => theme.set(event.currentTarget.value)} data-choice="theme"><option value="system">as the system</option><option value="light">light</option><option value="dark">dark</option></select></label>
      <label>Times in<select value={where} onChange={(event) => zone.set(event.currentTarget.value)} data-choice="zone"><option value="local">this browser's zone</option><option value="utc">UTC</option><option value="cluster">the cluster's ({found?.["timezone-name"] ?? "?"})</option></select></label>
      {access && (
        <button type="button" class="plain" onClick={() => (hasToken() ? logOut() : loginWanted.set("asked"))} data-action="log-in">
          {hasToken() ? "Log out" : access.change ? "Open to all" : "Log in"}
        </button>
      )}
      <button type="button" class="plain" onClick={help} title="?">Keys</button>
      <span class="dim">{version && `Firesteel ${version}`}{found?.features["web-history"] && ", history server"}</span>
    </div>
  );
}

function logOut(): void {
  useToken("");
  location.reload(); // nothing of what was shown with the token stays
}

function Login({ required }: { required: boolean }) {
  const [token, setToken] = useState("");
  const [wrong, setWrong] = useState("");
  const enter = async (event: Event) => {
    event.preventDefault();
    useToken(token.trim());
    try {
      const found = await readConfig();
      if (found["firesteel-access"]?.change === false) throw new ApiError(401, "", "/config");
      loginWanted.set("no");
    } catch (error) {
      useToken("");
      const refused = error instanceof ApiError && error.status === 401;
      setWrong(refused ? "The cluster does not know this token." : error instanceof Error ? error.message : String(error));
      if (!required) void readConfig().catch(() => {});
    }
  };
  return (
    <Dialog title="Log in" close={() => loginWanted.set("no")} name="login">
      <form onSubmit={enter}>
        <p>{required ? "This cluster shows itself only to those who have its token." : "Who has the cluster's token may change it: submit, stop and cancel jobs, take savepoints."}</p>
        <label>
          Token
          <input type="password" autocomplete="off" value={token} onInput={(event) => setToken(event.currentTarget.value)} name="token" required />
        </label>
        <p class="dim"><code>firesteel token</code> prints it where the cluster's configuration is. It stays in the memory of this tab, and is gone with it.</p>
        {wrong && <p class="trouble" role="alert">{wrong}</p>}
        <div class="dialog-buttons">
          {!required && <button type="button" class="plain" onClick={() => loginWanted.set("no")}>Only look</button>}
          <button type="submit" class="primary" data-confirm="log-in">Log in</button>
        </div>
      </form>
    </Dialog>
  );
}

function Notes() {
  const found = useStore(notes);
  return (
    <div class="notes" role="status" aria-live="polite">
      {found.map((one) => (
        <div key={one.id} class={`note ${one.kind}`} data-note={one.kind}>
          <button type="button" class="plain" onClick={() => dismiss(one.id)} aria-label="Close">×</button>
          <b>{one.text}</b>
          {one.detail && <pre>{one.detail}</pre>}
        </div>
      ))}
    </div>
  );
}

function Help({ close }: { close: () => void }) {
  return (
    <Dialog title="Keys" close={close} name="help">
      <dl class="facts keys">
        {SECTIONS.map(([key, title, letter]) => <div key={key}><dt><kbd>g</kbd> <kbd>{letter}</kbd></dt><dd>{title}</dd></div>)}
        <div><dt><kbd>/</kbd></dt><dd>search on this page</dd></div>
        <div><dt><kbd>d</kbd></dt><dd>dark or light</dd></div>
        <div><dt><kbd>Escape</kbd></dt><dd>close, or back to all vertices</dd></div>
        <div><dt><kbd>Tab</kbd> <kbd>Enter</kbd></dt><dd>go through rows and vertices, open one</dd></div>
        <div><dt><kbd>?</kbd></dt><dd>this list</dd></div>
      </dl>
      <div class="dialog-buttons"><button type="button" class="plain" onClick={close}>Close</button></div>
    </Dialog>
  );
}

const system = matchMedia("(prefers-color-scheme: dark)");
function paint(): void {
  const isDark = theme.get() === "dark" || (theme.get() !== "light" && system.matches);
  document.documentElement.dataset["theme"] = isDark ? "dark" : "light";
  dark.set(isDark);
}
theme.listen(paint);
system.addEventListener("change", paint);
paint();
onRefused(() => {
  if (loginWanted.get() === "no") loginWanted.set(config.get() ? "asked" : "required");
});
startRouter();
render(<App />, document.getElementById("app")!);
