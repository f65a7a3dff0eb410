// What a dashboard of ours has to be, for tests/dashboards/test_types.py: Grafana's own types, narrowed to the panels
// that we use. Their enums are plain values in a file, and their open ends (options, queries) are closed here.
import type { AnnotationQuery, Dashboard, Panel, RowPanel, VariableModel } from '@grafana/schema';
import type {
  FieldConfig as HeatmapField,
  Options as HeatmapOptions,
} from '@grafana/schema/dist/esm/raw/composable/heatmap/panelcfg/x/HeatmapPanelCfg_types.gen';
import type { Options as StatOptions } from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type {
  FieldConfig as LinesField,
  Options as LinesOptions,
} from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';

type Plain<T> = T extends string
  ? `${T}`
  : T extends (infer Item)[]
    ? Plain<Item>[]
    : T extends object
      ? { [Name in keyof T]: Plain<T[Name]> }
      : T;

interface Source {
  type: 'prometheus';
  uid: string;
}
interface Query {
  refId: string;
  datasource: Source;
  expr: string;
  legendFormat: string;
  range: boolean;
  instant: boolean;
  format: 'time_series' | 'heatmap';
}
interface MarkQuery {
  refId: string;
  datasource: Source;
  expr: string;
  legendFormat: string;
}
interface Link {
  title: string;
  url: string;
  targetBlank: boolean;
}
type Defaults<Field> = Omit<NonNullable<Plain<Panel>['fieldConfig']>['defaults'], 'custom' | 'links'> & {
  custom?: Plain<Field>;
  links: Link[];
};
type Shown<Type extends string, Options, Field> = Omit<Plain<Panel>, 'options' | 'fieldConfig' | 'targets' | 'type'> & {
  type: Type;
  title: string;
  description: string;
  targets: Query[];
  options: Plain<Options>;
  fieldConfig: { defaults: Defaults<Field>; overrides: [] };
};

export type timeseries = Shown<'timeseries', Partial<LinesOptions>, LinesField>;
export type stat = Shown<'stat', Partial<StatOptions>, never>;
export type heatmap = Shown<'heatmap', Partial<HeatmapOptions>, HeatmapField>;
export type row = Plain<RowPanel>;
export type variable = Plain<VariableModel>;
export type annotation = Omit<Plain<AnnotationQuery>, 'target'> & {
  expr: string;
  target: MarkQuery;
  titleFormat: string;
  textFormat: string;
  tagKeys: string;
  useValueForTime: boolean;
};
export type frame = Omit<Plain<Dashboard>, 'panels' | 'templating' | 'annotations'>;
