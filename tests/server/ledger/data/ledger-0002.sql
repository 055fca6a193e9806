BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0002');
CREATE TABLE audit (
	id INTEGER NOT NULL, 
	at DOUBLE NOT NULL, 
	actor VARCHAR(200) NOT NULL, 
	action VARCHAR(40) NOT NULL, 
	population VARCHAR(100), 
	run VARCHAR(40), 
	round INTEGER, 
	event VARCHAR(32) NOT NULL, 
	body TEXT NOT NULL, 
	previous VARCHAR(64) NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_audit PRIMARY KEY (id), 
	CONSTRAINT uq_audit_event UNIQUE (event)
);
INSERT INTO "audit" VALUES(1,1.79531773484386181832e+09,'officer','population.create','people',NULL,NULL,'8cabe309e052d438153dd3d480c02432','{"adjacency":"zero_out","delta":1e-06,"epsilon":4.0,"salt":"1d10c14183c1e92f9054f249f0823e5f011a66ff0e5978951af77e6a2c48526b","simulated":false,"unit":"user"}','a3f6b3f04dd4d7c7c6f9baba8fd8faadec46ef38efc393a9c991b0cdd11a0084','181779d2447892567056bea220ec1ea957a7e13e75ef887301dc50069f9abf20');
INSERT INTO "audit" VALUES(2,1.79531773487150430679e+09,'officer','population.raise','people',NULL,NULL,'249e2acf0c533fde84b480cc68a4610d','{"delta":1e-06,"epsilon":5.0,"reason":"agreed on 3 May"}','181779d2447892567056bea220ec1ea957a7e13e75ef887301dc50069f9abf20','0dbe16c128654d38fe7577d52bdd8121e279f91d5b99cf3a9c70904532576546');
INSERT INTO "audit" VALUES(3,1.7953177348910357952e+09,'officer','population.create','others',NULL,NULL,'0fcb67275adafe705e3ac9dcfa5a40b0','{"adjacency":"add_remove","delta":1e-06,"epsilon":1.0,"salt":"b60d343dbb0b365eeba07fc28755f1c1d38cb382f4103261caa01ab5edace543","simulated":false,"unit":"user"}','0dbe16c128654d38fe7577d52bdd8121e279f91d5b99cf3a9c70904532576546','3f0547b95a588fb5af534aad5dccfa2eca3dbedee7ea03f6ebc308ca3ba2a750');
INSERT INTO "audit" VALUES(4,1.79531773512050533297e+09,'officer','population.close','others',NULL,NULL,'9a0e5413b0a04c14d5a4b33c03e53089','{}','3f0547b95a588fb5af534aad5dccfa2eca3dbedee7ea03f6ebc308ca3ba2a750','4db7010bb779ec775cae384c396d6fb4e0b90e4891c8d6ba3cb094fa7f5e4e8e');
INSERT INTO "audit" VALUES(5,1.79531773515598273276e+09,'officer','token.create',NULL,NULL,NULL,'dff1e84ba26f108b23c4779ef9b8cfdc','{"digest":"292751e3e8b43c65e4e70a006ca0141cc2bf13f3672e64fb0c7d8b898572e185","expires_at":null,"id":"68196c45fafe","name":"page","scopes":["read"]}','4db7010bb779ec775cae384c396d6fb4e0b90e4891c8d6ba3cb094fa7f5e4e8e','c03831dfb8d07f7e4063d9946a17f988eeb5048ab47f25a270926b561bf37dc3');
INSERT INTO "audit" VALUES(6,1.79531773517027521129e+09,'officer','token.create',NULL,NULL,NULL,'5345d06e685a25dbbc981e9b41b315b1','{"digest":"0ac37162a48c45a730115465234033aef622e15e3e704d37966638acf649a6d4","expires_at":null,"id":"caa59b323694","name":"office","scopes":["read","admin"]}','c03831dfb8d07f7e4063d9946a17f988eeb5048ab47f25a270926b561bf37dc3','29f39a7c67e89b48a7ea968a66fdd786f2e3b72551c7640a32f6dacb2ceb6cd8');
INSERT INTO "audit" VALUES(7,1.79531773517820668218e+09,'officer','token.revoke',NULL,NULL,NULL,'ec4c3dabda8031e546eef4bb888b42f2','{"id":"68196c45fafe"}','29f39a7c67e89b48a7ea968a66fdd786f2e3b72551c7640a32f6dacb2ceb6cd8','995c7c8dc25c3430e5d800ebeb028570b7e6dd6dc0146891bfd39395b735311f');
INSERT INTO "audit" VALUES(8,1.79531773518409371375e+09,'test','run.start','people','ae42629227df',NULL,'eeaa71b3617edf87840cd6fc8f5c6c68','{"format":1,"key_commitment":"e466a431ac9935f2a2e7c9d3e9ca627987556fb0d53c8e529449b2a74055170e","noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.6400000000000001,\"sampled\":[]}","rounds":3,"trust_node_ids":false}','995c7c8dc25c3430e5d800ebeb028570b7e6dd6dc0146891bfd39395b735311f','9d9ddc27777a754d882cfe5b6bc3cb900a760848277d7a3808ec2bac85925771');
INSERT INTO "audit" VALUES(9,1.79531773520725560183e+09,'run ae42629227df','users.register','people','ae42629227df',NULL,'034989336bfb81bf9e8079c2a3d5f1ed','{"count":40,"first":0,"hashes":"3c9fd88b6eddfcbb9926d2eaf31f75c893c252b27625be8b444910924ef37d9b"}','9d9ddc27777a754d882cfe5b6bc3cb900a760848277d7a3808ec2bac85925771','65c8dcaff9135a3fa298a3ce62cf45d39a1a7b50d4ed5769278ad1433edb3fb7');
INSERT INTO "audit" VALUES(10,1.79531773523078560833e+09,'run ae42629227df','round.open','people','ae42629227df',0,'58c0b0163d8cd7a286513a90916f0b38','{"attempt":0,"cohort":"6d34f835e6ad2facc813b330ee06c8f039ddefab820d8fd5c9d7554a8af34f24","cohort_size":3,"noise_row":0}','65c8dcaff9135a3fa298a3ce62cf45d39a1a7b50d4ed5769278ad1433edb3fb7','c673c4f53d7163594e1012cd13d4fef774c76f3c1cd177998d2f48fa6f4d7677');
INSERT INTO "audit" VALUES(11,1.79531773525195503232e+09,'run ae42629227df','round.commit','people','ae42629227df',0,'7de77a9d45292517e535d30947fc5042','{"attempt":0,"checkpoint":"5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9","epsilon":0.8341175486240524,"noise_row":0,"nonce":"00000000000000000000000000000000","participant_count":3,"participants":"6d34f835e6ad2facc813b330ee06c8f039ddefab820d8fd5c9d7554a8af34f24","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.04,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','c673c4f53d7163594e1012cd13d4fef774c76f3c1cd177998d2f48fa6f4d7677','e25a48b536dd08f858e0ede9dff99ee968d47950a527956452018d6f0db4d275');
INSERT INTO "audit" VALUES(12,1.79531773527417683601e+09,'run ae42629227df','round.open','people','ae42629227df',1,'dffd72f962b1009c9efe3a757b7dcbd0','{"attempt":0,"cohort":"e2bbd168851bb149198913ed70a0e3a4e097711896fce3f22d46cdcfbcdc8928","cohort_size":2,"noise_row":1}','e25a48b536dd08f858e0ede9dff99ee968d47950a527956452018d6f0db4d275','82ef6c3f44335ddcd9f57b648615bed5ec95784b41951f7d40b40dec57e2cd43');
INSERT INTO "audit" VALUES(13,1.79531773529164075846e+09,'run ae42629227df','round.commit','people','ae42629227df',1,'b75ca198d677d995be84a540dfafc88e','{"attempt":0,"checkpoint":"6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b","epsilon":1.2119674527380742,"noise_row":1,"nonce":"01010101010101010101010101010101","participant_count":2,"participants":"e2bbd168851bb149198913ed70a0e3a4e097711896fce3f22d46cdcfbcdc8928","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.08,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','82ef6c3f44335ddcd9f57b648615bed5ec95784b41951f7d40b40dec57e2cd43','3fc605a347f89c350f2ec27f2d24da25aa106339bfa501dfddff6f1d3eba759f');
INSERT INTO "audit" VALUES(14,1.79531773530216169363e+09,'run ae42629227df','round.open','people','ae42629227df',2,'6d9e5960dfddba91a5263c9fd7b3d711','{"attempt":0,"cohort":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","cohort_size":1,"noise_row":2}','3fc605a347f89c350f2ec27f2d24da25aa106339bfa501dfddff6f1d3eba759f','cd75bdabd5c20d15e10af279bbf8ab973061ff17cf9324c01705189a9cd4d6c3');
INSERT INTO "audit" VALUES(15,1.79531773531835508344e+09,'run ae42629227df','round.commit','people','ae42629227df',2,'50d45cb9d07e49a23b0c328b38db4149','{"attempt":0,"checkpoint":"d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35","epsilon":1.2119674527380742,"noise_row":2,"nonce":"02020202020202020202020202020202","participant_count":1,"participants":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.08,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','cd75bdabd5c20d15e10af279bbf8ab973061ff17cf9324c01705189a9cd4d6c3','5d2d3f4c8c6cdd2dbcf237fb5639b7b1042c09fbeca93be1b1dbf8ad66c4ee1b');
INSERT INTO "audit" VALUES(16,1.79531773533415627474e+09,'ae42629227df','run.finish','people','ae42629227df',NULL,'b426a7aeb35403e5c7d07cc7416621d4','{"message":"","settled":"{\"mu_squared\":0.08,\"sampled\":[]}","spent":"{\"mu_squared\":0.08,\"sampled\":[]}","state":"done"}','5d2d3f4c8c6cdd2dbcf237fb5639b7b1042c09fbeca93be1b1dbf8ad66c4ee1b','46de558005314f762d0b90273e72d15bec3df76808094a8128d792a6f8eec758');
INSERT INTO "audit" VALUES(17,1.79531773534231352804e+09,'test','run.start','people','fee67184c9ab',NULL,'ef399da19241b3bb1fec807429dd565d','{"format":1,"key_commitment":"aae00c71dc4892e133b36cba774cd99d511a0267788d160404f598568cdedc6f","noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","rounds":3,"trust_node_ids":false}','46de558005314f762d0b90273e72d15bec3df76808094a8128d792a6f8eec758','3ac5117538744c185b426119a84283363b9a047a35c6d56c96d0043dcc02d38c');
INSERT INTO "audit" VALUES(18,1.79531773536391472817e+09,'run fee67184c9ab','round.open','people','fee67184c9ab',0,'f4b9e7064ecb94188aba14b903b332ee','{"attempt":0,"cohort":"46d2a2090f3ec57a778cdc017b0204dd3ffc97744a7e5d4e6c789b4b600073e2","cohort_size":2,"noise_row":0}','3ac5117538744c185b426119a84283363b9a047a35c6d56c96d0043dcc02d38c','5296a112eab009a4ab3703ba36c370b71946122d0cba8e8245fd6f58b08f1d44');
INSERT INTO "audit" VALUES(19,1.79531773537810063366e+09,'run fee67184c9ab','round.void','people','fee67184c9ab',0,'2dbabffa518978acf1e4a294d94ffb29','{"attempt":0,"reason":"too few","rejects":{"shape":2},"reports":1}','5296a112eab009a4ab3703ba36c370b71946122d0cba8e8245fd6f58b08f1d44','4b80fe8c938007a69c932745a5f704c208a60dcaada84d7e7ab712df26b78bb0');
INSERT INTO "audit" VALUES(20,1.79531773539287638663e+09,'run fee67184c9ab','round.open','people','fee67184c9ab',0,'dae6506cf5e3ec37ed408d20e56d1880','{"attempt":1,"cohort":"32a46748a9dc0aabef51e08210130c638172505c64dbf30b8e41b121e8f9ad9c","cohort_size":2,"noise_row":0}','4b80fe8c938007a69c932745a5f704c208a60dcaada84d7e7ab712df26b78bb0','373658c5a033cb5835a0ea1d5830fc888e1dc3fbaf3b64c2247d6a43da015dcc');
INSERT INTO "audit" VALUES(21,1.79531773541393756864e+09,'run fee67184c9ab','round.commit','people','fee67184c9ab',0,'48f27a9f95ac3c476abade67fdc4a53e','{"attempt":1,"checkpoint":"d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa","epsilon":0.8341175486240524,"noise_row":0,"nonce":"09090909090909090909090909090909","participant_count":1,"participants":"b1fe78d56a7c62bb11dc790717a621b63e48f9689da5a720564dcd0d1bfb0ecf","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','373658c5a033cb5835a0ea1d5830fc888e1dc3fbaf3b64c2247d6a43da015dcc','008f0f4570787c3e8d8ec9d3785cb666ddea7495ec7d290486358470590f5d63');
INSERT INTO "audit" VALUES(22,1.79531773542666769028e+09,'run fee67184c9ab','users.register','people','fee67184c9ab',NULL,'4a154581f06466886c3cbc9cb0febd35','{"count":10,"first":40,"hashes":"5e06029e9e8f89cddbf04e0a6a894270f76ea0985cb08ca11e38941c1d04daa9"}','008f0f4570787c3e8d8ec9d3785cb666ddea7495ec7d290486358470590f5d63','828ebabee4914080772b151ab11712d5c6f0271bbe12c525ed7d396261ff9e4f');
INSERT INTO "audit" VALUES(23,1.79531773543857312196e+09,'run fee67184c9ab','round.open','people','fee67184c9ab',1,'f798b563a2de66552303379de92e037f','{"attempt":0,"cohort":"2745bb9e9a5bde592558d3361d9f49ca8ac3e0292421d84ae954a11a60548144","cohort_size":2,"noise_row":1}','828ebabee4914080772b151ab11712d5c6f0271bbe12c525ed7d396261ff9e4f','5b48cd32d505f1b5a2940eea4303e3b3afc6b340ab6a1aa6447bd577189b35fe');
CREATE TABLE head (
	id INTEGER NOT NULL, 
	ledger VARCHAR(32) NOT NULL, 
	count BIGINT NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_head PRIMARY KEY (id), 
	CONSTRAINT ck_head_one_row CHECK (id = 1)
);
INSERT INTO "head" VALUES(1,'85454f32e60a18e82284ea59c1fc890a',23,'5b48cd32d505f1b5a2940eea4303e3b3afc6b340ab6a1aa6447bd577189b35fe');
CREATE TABLE leases (
	run_seq INTEGER NOT NULL, 
	holder VARCHAR(300) NOT NULL, 
	token BIGINT NOT NULL, 
	beat BIGINT NOT NULL, 
	renewed_at DOUBLE NOT NULL, 
	seconds DOUBLE NOT NULL, 
	CONSTRAINT pk_leases PRIMARY KEY (run_seq), 
	CONSTRAINT fk_leases_run_seq FOREIGN KEY(run_seq) REFERENCES runs (seq)
);
INSERT INTO "leases" VALUES(1,'',2,8,1.79531773533415627474e+09,30.0);
INSERT INTO "leases" VALUES(2,'test',1,6,1.79531773543857312196e+09,30.0);
CREATE TABLE participations (
	round_id INTEGER NOT NULL, 
	run_seq INTEGER NOT NULL, 
	"index" INTEGER NOT NULL, 
	count INTEGER NOT NULL, 
	users BLOB NOT NULL, 
	CONSTRAINT pk_participations PRIMARY KEY (round_id), 
	CONSTRAINT fk_participations_round_id FOREIGN KEY(round_id) REFERENCES rounds (id), 
	CONSTRAINT fk_participations_run_seq FOREIGN KEY(run_seq) REFERENCES runs (seq), 
	CONSTRAINT uq_participations_run_seq_index UNIQUE (run_seq, "index")
);
INSERT INTO "participations" VALUES(1,1,0,3,X'0178DA636064040000060003');
INSERT INTO "participations" VALUES(2,1,1,2,X'0178DA6362040000070004');
INSERT INTO "participations" VALUES(3,1,2,1,X'0178DA63010000050005');
INSERT INTO "participations" VALUES(5,2,0,1,X'0178DA63050000060006');
CREATE TABLE populations (
	id INTEGER NOT NULL, 
	name VARCHAR(100) NOT NULL, 
	epsilon DOUBLE NOT NULL, 
	delta DOUBLE NOT NULL, 
	adjacency VARCHAR(20) NOT NULL, 
	unit VARCHAR(100) NOT NULL, 
	simulated BOOLEAN NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	salt BLOB NOT NULL, 
	users BIGINT NOT NULL, 
	settled TEXT NOT NULL, 
	created_at DOUBLE NOT NULL, 
	created_by VARCHAR(200) NOT NULL, leak DOUBLE DEFAULT '0' NOT NULL, 
	CONSTRAINT pk_populations PRIMARY KEY (id), 
	CONSTRAINT ck_populations_budget CHECK (epsilon > 0 AND delta > 0 AND delta < 1), 
	CONSTRAINT uq_populations_name UNIQUE (name)
);
INSERT INTO "populations" VALUES(1,'people',5.0,1.0e-06,'zero_out','user',0,'open',X'A2DE1010CC736C8767288ECBCDEC861D',50,'{"mu_squared":0.08,"sampled":[]}',1.79531773484386181832e+09,'officer',0.0);
INSERT INTO "populations" VALUES(2,'others',1.0,1.0e-06,'add_remove','user',0,'closed',X'F81253146718FDECF9E1739F804AD8E6',0,'{"mu_squared":0.0,"sampled":[]}',1.7953177348910357952e+09,'officer',0.0);
CREATE TABLE rounds (
	id INTEGER NOT NULL, 
	run_seq INTEGER NOT NULL, 
	"index" INTEGER NOT NULL, 
	attempt INTEGER NOT NULL, 
	noise_row INTEGER NOT NULL, 
	state VARCHAR(12) NOT NULL, 
	cohort BLOB, 
	cohort_size INTEGER NOT NULL, 
	reports INTEGER NOT NULL, 
	participants INTEGER NOT NULL, 
	spent TEXT, 
	epsilon DOUBLE, 
	checkpoint VARCHAR(64), 
	statistics TEXT NOT NULL, 
	rejects TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	opened_at DOUBLE NOT NULL, 
	closed_at DOUBLE, nonce VARCHAR(32), 
	CONSTRAINT pk_rounds PRIMARY KEY (id), 
	CONSTRAINT fk_rounds_run_seq FOREIGN KEY(run_seq) REFERENCES runs (seq), 
	CONSTRAINT uq_rounds_run_seq_index_attempt UNIQUE (run_seq, "index", attempt)
);
INSERT INTO "rounds" VALUES(1,1,0,0,0,'committed',NULL,3,9,3,'{"mu_squared":0.04,"sampled":[]}',8.34117548624052407291e-01,'5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9','{"accuracy":0.5}','{"nan":1}','',1.79531773523078560833e+09,1.79531773525195503232e+09,'00000000000000000000000000000000');
INSERT INTO "rounds" VALUES(2,1,1,0,1,'committed',NULL,2,9,2,'{"mu_squared":0.08,"sampled":[]}',1.21196745273807415799e+00,'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b','{"accuracy":0.5}','{"nan":1}','',1.79531773527417683601e+09,1.79531773529164075846e+09,'01010101010101010101010101010101');
INSERT INTO "rounds" VALUES(3,1,2,0,2,'committed',NULL,1,9,1,'{"mu_squared":0.08,"sampled":[]}',1.21196745273807415799e+00,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35','{"accuracy":0.5}','{"nan":1}','',1.79531773530216169363e+09,1.79531773531835508344e+09,'02020202020202020202020202020202');
INSERT INTO "rounds" VALUES(4,2,0,0,0,'void',NULL,2,1,0,NULL,NULL,NULL,'{}','{"shape":2}','too few',1.79531773536391472817e+09,1.79531773537810063366e+09,NULL);
INSERT INTO "rounds" VALUES(5,2,0,1,0,'committed',NULL,2,0,1,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa','{}','{}','',1.79531773539287638663e+09,1.79531773541393756864e+09,'09090909090909090909090909090909');
INSERT INTO "rounds" VALUES(6,2,1,0,1,'open',X'0178DAE36004000013000A',2,0,0,NULL,NULL,NULL,'{}','{}','',1.79531773543857312196e+09,NULL,NULL);
CREATE TABLE runs (
	seq INTEGER NOT NULL, 
	id VARCHAR(40) NOT NULL, 
	population_id INTEGER NOT NULL, 
	"plan" TEXT NOT NULL, 
	plan_digest VARCHAR(128) NOT NULL, 
	rounds INTEGER NOT NULL, 
	planned TEXT NOT NULL, 
	spent TEXT NOT NULL, 
	noise_source VARCHAR(40) NOT NULL, 
	key_commitment VARCHAR(128) NOT NULL, 
	trust_node_ids BOOLEAN NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	request VARCHAR(20), 
	message TEXT NOT NULL, 
	next_round INTEGER NOT NULL, 
	checkpoint VARCHAR(64), 
	started_at DOUBLE NOT NULL, 
	started_by VARCHAR(200) NOT NULL, 
	ended_at DOUBLE, price TEXT, format INTEGER DEFAULT '0' NOT NULL, strategy VARCHAR(64), 
	CONSTRAINT pk_runs PRIMARY KEY (seq), 
	CONSTRAINT fk_runs_population_id FOREIGN KEY(population_id) REFERENCES populations (id), 
	CONSTRAINT uq_runs_id UNIQUE (id)
);
INSERT INTO "runs" VALUES(1,'ae42629227df',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.6400000000000001,"sampled":[]}','{"mu_squared":0.08,"sampled":[]}','secure','e466a431ac9935f2a2e7c9d3e9ca627987556fb0d53c8e529449b2a74055170e',0,'done',NULL,'',3,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35',1.79531773518409371375e+09,'test',1.79531773533415627474e+09,NULL,1,NULL);
INSERT INTO "runs" VALUES(2,'fee67184c9ab',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','aae00c71dc4892e133b36cba774cd99d511a0267788d160404f598568cdedc6f',0,'running',NULL,'',1,'d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa',1.79531773534231352804e+09,'test',NULL,NULL,1,NULL);
CREATE TABLE tokens (
	id VARCHAR(20) NOT NULL, 
	name VARCHAR(200) NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	scopes VARCHAR(100) NOT NULL, 
	created_at DOUBLE NOT NULL, 
	created_by VARCHAR(200) NOT NULL, 
	expires_at DOUBLE, 
	revoked_at DOUBLE, 
	CONSTRAINT pk_tokens PRIMARY KEY (id), 
	CONSTRAINT uq_tokens_digest UNIQUE (digest)
);
INSERT INTO "tokens" VALUES('68196c45fafe','page','292751e3e8b43c65e4e70a006ca0141cc2bf13f3672e64fb0c7d8b898572e185','read',1.79531773515598273276e+09,'officer',NULL,1.79531773517820668218e+09);
INSERT INTO "tokens" VALUES('caa59b323694','office','0ac37162a48c45a730115465234033aef622e15e3e704d37966638acf649a6d4','read admin',1.79531773517027521129e+09,'officer',NULL,NULL);
CREATE TABLE users (
	population_id INTEGER NOT NULL, 
	first BIGINT NOT NULL, 
	count INTEGER NOT NULL, 
	hashes BLOB NOT NULL, 
	CONSTRAINT pk_users PRIMARY KEY (population_id, first), 
	CONSTRAINT fk_users_population_id FOREIGN KEY(population_id) REFERENCES populations (id)
);
INSERT INTO "users" VALUES(1,0,40,X'8D309E9E39A6000FDB2F719C39BAF8A5DC8DAC4027B0913E5AD5921E3FC34B32C4FB0515C229CF2113BF8A2271ADAE4AA03E40A75EA2108F90E9D9677B2A9C35C2C9024A9262970E1ED457892D6B0993592035F95B82C6220BF99A61EDB325D41B74F5DBCD489E038F13BEC5D6AF1DCD8D9E29DE6FBACB9144888BC10D27FCF14554E644411E5D2EE17274007F036BFEB2F5D38050B9DBEB434486A085BF0F01B35C23411CAAFAEA63B7B0F4350BC1512E69FB2D63EB9FA03CA9F1FEE4473E64B895E9416126D2C2244236AA286C709E38020F2230ABD17993165AF76017B70FC5F457ECB73A0924ACB6529FFE69230A0ECC2138E245215AB7DEEC657CF5D5B5A490753BAA227CDFE30AFE3FB1017F3DE5D123D158874F2C8BCE6D2C30517BAF0DA8B8863B7B9C35EEFAA9C92A8094456A046F7560BF2CD93B07D8AD6F86D149');
INSERT INTO "users" VALUES(1,40,10,X'243D0ADCC7894090CA7FDB90413CC40BD5A2405A9D7AC2331F20E62C51DFC7DA1A66D5AA1CB8DB42E4BF7C5E0525E159168C7C37ECFFC87DD93295E178775725075DB525D838673192EDB0EFD9A377B8');
CREATE INDEX ix_audit_population ON audit (population);
CREATE INDEX ix_audit_run ON audit (run);
CREATE INDEX ix_runs_population_id_state ON runs (population_id, state);
CREATE UNIQUE INDEX uq_runs_key ON runs (key_commitment) WHERE noise_source <> 'seeded';
CREATE UNIQUE INDEX uq_rounds_committed_noise_row ON rounds (run_seq, noise_row) WHERE state = 'committed';
CREATE UNIQUE INDEX uq_rounds_one_open ON rounds (run_seq) WHERE state = 'open';
CREATE TRIGGER audit_append BEFORE INSERT ON audit WHEN NEW.id <> (SELECT count FROM head) + 1 BEGIN SELECT RAISE(ABORT, 'the audit log only grows at its end'); END;
CREATE TRIGGER audit_keep BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_stay BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER head_forward BEFORE UPDATE ON head WHEN NEW.count <> OLD.count + 1 BEGIN SELECT RAISE(ABORT, 'the audit log never gets shorter'); END;
CREATE TRIGGER head_stay BEFORE DELETE ON head BEGIN SELECT RAISE(ABORT, 'the audit log never gets shorter'); END;
CREATE TRIGGER rounds_keep BEFORE UPDATE ON rounds WHEN OLD.state <> 'open' BEGIN SELECT RAISE(ABORT, 'a closed round does not change'); END;
CREATE TRIGGER rounds_stay BEFORE DELETE ON rounds BEGIN SELECT RAISE(ABORT, 'rounds are not removed'); END;
CREATE TRIGGER participations_keep BEFORE UPDATE ON participations BEGIN SELECT RAISE(ABORT, 'participation does not change'); END;
CREATE TRIGGER participations_stay BEFORE DELETE ON participations BEGIN SELECT RAISE(ABORT, 'participation does not change'); END;
CREATE TRIGGER users_keep BEFORE UPDATE ON users BEGIN SELECT RAISE(ABORT, 'users are not renumbered'); END;
CREATE TRIGGER users_stay BEFORE DELETE ON users BEGIN SELECT RAISE(ABORT, 'users are not renumbered'); END;
CREATE UNIQUE INDEX uq_rounds_nonce ON rounds (nonce);
COMMIT;
