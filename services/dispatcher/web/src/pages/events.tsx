import { at, usePolled } from "../api";
import { count, duration } from "../format";
import { Answer, Card, Copy, When } from "../parts";
import { useQuery } from "../router";
import { matches } from "../table";
import type { JobEvent, JobEvents } from "../types";

const TONES: Record<string, string> = { ERROR: "bad", WARN: "warn" };
const isPath = (text: string) => /^(\/|[a-z0-9]+:\/)/.test(text);

/** What has happened to a job, the newest first. */
export function EventsTab({ id }: { id: string }) {
  const of = usePolled<JobEvents>(at("jobs", id, "events"));
  const [find, setFind] = useQuery("find");
  return (
    <Answer of={of} what="events">
      {({ events, dropped }) => (
        <Card name="events">
          <div class="table-tools">
            <input class="find" type="search" placeholder="Search in events" value={find} onInput={(event) => setFind(event.currentTarget.value)} />
          </div>
          {events.length === 0 && <p class="empty">Nothing is known of this job: it ran in an earlier release.</p>}
          <ol class="events">
            {[...events].reverse().filter((event) => matches(`${event.type} ${event.text} ${event.detail} ${event.by}`, find)).map((event) => <Event key={`${event.timestamp} ${event.type} ${event.text}`} event={event} />)}
          </ol>
          {dropped > 0 && <p class="dim">{count(dropped)} earlier events are kept no more; what somebody asked for stays longest.</p>}
        </Card>
      )}
    </Answer>
  );
}

function Event({ event }: { event: JobEvent }) {
  return (
    <li data-event={event.type}>
      <span class="dim"><When ms={event.timestamp} /></span>
      <span class={`badge ${TONES[event.level] ?? "off"}`}>{event.type.replaceAll("_", " ")}</span>
      <div>
        {event.text}
        {event.count > 1 && <b> · {count(event.count)} times in {duration(event.last - event.timestamp)}</b>}
        {event.detail && <div class="dim">{isPath(event.detail) ? <Copy text={event.detail} /> : event.detail}</div>}
        {event.by && <div class="dim">asked for by {event.by}</div>}
      </div>
    </li>
  );
}
